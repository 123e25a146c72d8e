// Package harness has the parts that the tests of built programs share.
//
// A Session is a control connection, a LogBuffer has the log of a server, a Clock is the clock of a server built with the tag testclock, and Overlay
// makes the sources of a server without a guard. A Client uses locks and files at random. Its Record is converted by Operations for porcupine.
//
// Only tests import it. Each wait ends after Patience at the latest.
//
// Start reading at session.go and history.go.
package harness
