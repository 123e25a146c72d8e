// Package server runs ftplockd: it opens the addresses, the log of locks, the served tree and the page, serves clients alone or
// in turn with other servers, reloads the configuration, answers administrators, and stops everything in one order.
//
// Its types: [Options] are the settings of the command line; [Run] serves until a signal; [Ask] sends a request of a command to
// the control socket of a running server.
//
// Guarantees: a start that fails changes nothing and leaves nothing open. A reload takes over the whole file or nothing. When
// another server may take over, no goroutine of this one can change a file or a lock.
//
// Caveats: Run changes how the process handles SIGINT, SIGTERM and SIGHUP, and ends the process if a stop hangs.
//
// Start reading at run.go, then server.go (start), service.go (the parts that clients use) and stop.go.
package server
