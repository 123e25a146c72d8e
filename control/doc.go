// Package control is the FTP control connection: what stands between the wire and
// ftpserverlib, which offers no hook for replies or for commands that it lacks.
//
// A [Listener] accepts for the library (Settings.Listener) and makes a [Conn] of each
// connection. The library's Read gets whole command lines from it, and its Write gives
// it whole reply lines. What a command means is decided by a [Handler]: control answers
// it itself ([Answer]), hands it to the library ([Pass]), runs it beside the reading, as a transfer ([Run]), lets it wait ([Wait]), upgrades
// to TLS ([StartTLS]) or ends the connection ([Close]). A [Command] is one line of the
// client, a [Reply] what it is told.
//
// What is promised: only complete lines are acted on; each command gets its replies, in
// the order of the commands, also when transfers, ABOR and waiting commands are
// pipelined; while a transfer runs or a command waits the connection is still read, so
// that its end is noticed at once; [Handler] learns of the end exactly once, before the
// library does; replies cannot be made to hold a line end or a NUL.
//
// What is not: a connection that ends without FIN or RST (a machine switched off, a cut
// cable) is noticed only when TCP gives up, see Options.UserTimeout. While the library
// executes a command that it was passed, the connection is not read. Gone, Unacked and
// what follows from them need a TCP socket and Linux; elsewhere only what was read counts.
//
// ftpserverlib's own idle timeout must be off (Settings.IdleTimeout -1): the deadline
// methods of a Conn do nothing, and idle time is counted here.
//
// Start reading at [Handler] and at Conn.Read.
package control
