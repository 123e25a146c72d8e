//go:build unix

package main

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

func TestDotsThatFindNoRoomAreLeftOut(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if !hasRoom(w) {
		t.Error("an empty pipe has no room")
	}
	raw, err := w.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Write(func(fd uintptr) bool {
		for {
			if _, err := syscall.Write(int(fd), []byte(strings.Repeat(".", 4096))); err != nil {
				return true
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	if hasRoom(w) {
		t.Error("a full pipe has room")
	}
}
