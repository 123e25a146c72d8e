// Command netlock holds a lock on an FTP server while a command runs, as flock(1) does with a file, or for the program that started it, which reads
// "OK" from it.
//
// root.go has the options and the commands, run.go runs a command under a lock, hold.go holds a lock for the parent process. A URL becomes a
// target (target.go), with a password of netrc.go. The code for one operating system is in caller_*.go (the parent process), child_*.go (a command
// and its processes), guard_*.go, raise_*.go and terminal_unix.go.
//
// A script may rely on the exit statuses of status.go, and on one line on standard error with the error and a hint ("netlock URL" writes the line
// to standard output). There is no other output unless standard error is a terminal. Netlock ends a command and all processes of its group before
// the server can grant the lock to another client. If netlock is killed, a second process (guard_unix.go) ends them; on Windows the job does.
//
// Caveats: on Unix, a process that leaves its process group is not ended. A netlock that is killed with SIGKILL leaves its lock on
// ftplockd for 15 s, and on other servers until an administrator removes it.
//
// Start reading at newRootCommand.
package main

import (
	"context"
	"os"
)

func main() {
	catchSIGPIPE()
	ignoreQuitOfBackgroundJob()
	cmd, err := newRootCommand().ExecuteContextC(context.Background())
	status := report(cmd, err)
	dieOfSignal(err)
	os.Exit(status)
}
