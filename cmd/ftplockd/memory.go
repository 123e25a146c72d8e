package main

import (
	"os"
	"runtime"
	"runtime/debug"
)

const (
	// ballastSize is memory that nobody ever writes to: it is in the collector's reckoning, and takes no room.
	ballastSize = 32 << 20
	// growth is by how many percent the heap, ballast included, grows from one collection to the next.
	growth = 30
)

// tuneCollector has the garbage collector work less while the heap is small, and leave less garbage while it is large.
// By itself Go lets a heap grow to 4 MiB, or to twice what is in use: under load a server with few sessions is collected for
// every 2 MiB or so, many times a second, and one with 10,000, which need 100 MiB, keeps as much again. With the
// ballast it is about 10 and 40 MiB. Who sets GOGC has it his way. The function that it returns is to be called at the end.
func tuneCollector() (over func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	ballast := make([]byte, ballastSize)
	before := debug.SetGCPercent(growth)
	return func() {
		debug.SetGCPercent(before)
		runtime.KeepAlive(ballast)
	}
}
