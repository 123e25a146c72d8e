// Command netlock holds a lock on an FTP server for a program that has no time for that: for the one that started it, which reads
// "OK" from it, or for a command that it runs.
//
// Each subcommand has a file of its own, named after it; root.go puts them together, hold.go is "netlock PROFILE". A PROFILE
// (profile.go) or URL (url.go) becomes a target: what package locksmith is asked for. What differs between operating systems is in
// caller_*.go (is the one that we hold the lock for still there?), child_*.go (a command and all that it started) and terminal_unix.go.
//
// What a script may rely on: the exit statuses of status.go; that one line, on standard error, says what went wrong and what would be
// right (for "netlock PROFILE" it is the one line on standard output); that nothing else is said unless standard error is a terminal. A
// command that runs under a lock is ended when the lock is lost, with all processes of its group, within "--kill-after" from when it is noticed.
//
// A second netlock (guard_unix.go) ends the command if the first one is killed; on Windows the job does.
//
// What it cannot promise: a process that leaves its process group is not ended on Unix; a netlock that is killed with SIGKILL leaves its lock
// for 15 s on ftplockd, and for whoever cleans up on other servers.
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
