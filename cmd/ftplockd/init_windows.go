package main

import "errors"

// supervise is for process 1, which does not exist on Windows.
func supervise() error { return errors.ErrUnsupported }
