package server

import (
	"fmt"
	"os"
	"path/filepath"
)

// socketPath names the control socket. The path of a socket has at most 107 bytes; a longer one goes by way of the open directory.
func socketPath(dir *os.File) string {
	if path := filepath.Join(dir.Name(), controlSocket); len(path) <= 100 {
		return path
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), controlSocket)
}
