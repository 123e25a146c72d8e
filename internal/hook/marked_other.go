//go:build !linux

package hook

// killMarked does nothing: here a process that left the group of its hook survives the timeout.
func killMarked(string) {}
