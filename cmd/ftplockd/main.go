// Listeners are for TCP only. By default Go makes them for Multipath TCP, which makes each passive port more expensive. The server also
// decides by the state of a TCP connection, such as the bytes that the client has acknowledged.
//
//go:debug multipathtcp=0

// Command ftplockd is an FTP server that is also a lock server: MKD of a lock's name acquires the lock, RMD releases it.
//
// root.go has the command tree, output.go the tables and JSON of commands. The exit status is 0 for success, 1 if a command failed, 2
// if the command line or the configuration is wrong, 69 if the server cannot prove that it is active, 74 if a write or sync of the
// journal failed, and 75 if another server is active. Each error is written once, to standard error; standard output has only results.
//
// Start reading at newRootCommand.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	// Without a reader of its standard error a command continues, and ends with its own status. Go would end it by SIGPIPE, even if that
	// was ignored at the start, and systemd takes this end for a success. Hooks inherit neither.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	os.Exit(execute(context.Background(), newRootCommand()))
}
