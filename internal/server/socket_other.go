//go:build !linux

package server

import (
	"os"
	"path/filepath"
)

// socketPath names the control socket. The system refuses a path of more than about 100 bytes.
func socketPath(dir *os.File) string { return filepath.Join(dir.Name(), controlSocket) }
