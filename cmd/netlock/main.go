// Command netlock holds a lock on an FTP server: around a command, as flock(1) does with a file, or for the program that started it, which reads
// "OK" from it.
//
// Each subcommand has a file of its own, named after it; root.go has the options and puts them together, run.go runs a command under a lock, hold.go
// holds one for the parent. A URL becomes a target (target.go), with a password of netrc.go. What differs between operating systems is in
// caller_*.go (is the program that started us still there?), child_*.go (a command and all that it started) and terminal_unix.go.
//
// A script may rely on the exit statuses of status.go; on one line on standard error with what went wrong and what would be right
// (for "netlock URL" it is the one line on standard output); and on no other output unless standard error is a terminal. A
// command that runs under a lock is ended, with all processes of its group, before the server can grant the lock to another client.
//
// A second netlock (guard_unix.go) ends the command if the first one is killed; on Windows the job does.
//
// What it cannot promise: a process that leaves its process group is not ended on Unix; a netlock that is killed with SIGKILL leaves its lock
// for 15 s on ftplockd, and until somebody removes it on other servers.
//
// Start reading at newRootCommand.
package main

import (
	"context"
	"os"
)

func main() {
	listenForPipe()
	os.Exit(report(newRootCommand().ExecuteContextC(context.Background())))
}
