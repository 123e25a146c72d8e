// Package server runs ftplockd: it opens the addresses, the log of locks, the served tree and the page, serves clients alone or
// in turn with other servers, reloads the configuration, answers administrators, and stops everything in one order.
//
// Its types: [Options] are the settings of the command line; [Run] serves until a signal; [Request] sends a request of a command to
// the control socket of a running server.
//
// Guarantees: a start that fails leaves nothing open. If the cause is the configuration, the certificate, an address, a sink of events or a
// state directory in use, it also changes nothing. A reload applies the whole file or nothing. When
// another server may take over, no goroutine of this one can change a file or a lock.
//
// Caveats: Run changes how the process handles SIGINT, SIGTERM and SIGHUP, and ends the process if a stop hangs.
//
// Start reading at run.go. Each stage of a server is one function: newServer in start.go, takeOver in takeover.go, reload in reload.go and stop in
// stop.go. service.go has the parts that serve clients.
package server
