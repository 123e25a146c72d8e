//go:build !linux

package main

import (
	"errors"
	"io/fs"
	"os"
)

// unnamed fails: there are no files without a name.
func unnamed(string, fs.FileMode) (*os.File, error) { return nil, errors.ErrUnsupported }

func link(*os.File, string) error { return errors.ErrUnsupported }
