// Command ftplockd is an FTP server that is a lock server: MKD of a lock's name
// acquires the lock, RMD gives it back.
//
// root.go has the command tree, and output.go the tables and JSON of commands. The exit
// status is 0 if all went well, 1 if a command failed, 2 if the command line or the
// configuration is wrong, 69 if the server cannot prove that it is the active one of several,
// 74 if the disk has failed the journal, 75 if another server has taken over. Each error is
// written once, to standard error; standard output has results only.
//
// Start reading at newRootCommand.
package main

import (
	"context"
	"os"
)

func main() {
	os.Exit(execute(context.Background(), newRootCommand()))
}
