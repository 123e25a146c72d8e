// Package control is the FTP control connection: it stands between the socket and ftpserverlib, which executes the
// commands.
//
// A [Server] makes a [Conn] of each connection that the library accepts (Settings.Listener). A Conn does three things:
//
//   - Lines: each Read of the library returns one whole command line, whose verb is in the table (verbs.go), in a form that
//     the library accepts. The functions in answers.go answer commands that the library lacks.
//   - Replies: the driver may replace the library's reply to a [Command] (Command.Reply).
//   - End: a Conn detects that the client has hung up, also while a command or a transfer runs (Conn.Gone, Command.Wait,
//     Command.Abort). It ends idle connections, and all connections at shutdown.
//
// [Ports] are the passive ports: each belongs to the connection whose 227 or 229 contains it.
//
// Guarantees: only complete lines are executed. Replies come in the order of the commands, also when transfers, ABOR and
// commands that wait are pipelined. The connection is read while a transfer runs or a command waits. Handler.Ended is called
// exactly once, after the last transfer. A text in a reply cannot add a line end or a NUL.
//
// Caveats: a connection that ends without FIN or RST (a machine switched off, a cut cable) is detected only when TCP gives
// up, see Limits.UserTimeout. The connection is not read while the library executes any other command. A client that
// sends 64 KiB of commands while a transfer runs or a command waits is disconnected. Gone and CatchUp need Linux; elsewhere they consider only
// input that was read.
//
// The package relies on undocumented behaviour of ftpserverlib v0.32.3: it calls Read only after it has executed the line
// before, or has started a transfer; it writes each reply line with its end in one Write; a transfer that ABOR does not abort
// gets exactly one final reply. The driver's tests fail if another version behaves otherwise.
//
// Start reading at Conn.Read and at the table in verbs.go.
package control
