// Package harness has the parts that tests share: the FTP client, and what the tests of built programs need.
//
// A Session is a control connection, which also plays the lines of transcripts. A LogBuffer has the log of a server, a Clock is the clock of a server
// built with the tag testclock, and Overlay makes the sources of a server without a guard. A Client uses locks and files at random. Its Record is
// converted by Operations for porcupine.
//
// Only tests import it. Each wait ends after Patience at the latest.
//
// Start reading at session.go, transcript.go and history.go.
package harness
