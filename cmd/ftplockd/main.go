// Command ftplockd is an FTP server that is a lock server: MKD of a lock's name
// acquires the lock, RMD gives it back.
//
// Each subcommand has a file of its own, named after it; root.go puts them
// together. The exit status is 0 if all went well, 1 if something failed while
// running, 2 if the command line or the configuration is wrong, 74 if the disk
// has failed the journal, 75 if another of several servers has taken over. What went
// wrong is said once, on standard error; standard output has results only.
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
