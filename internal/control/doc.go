// Package control is the FTP control connection: it stands between the socket and ftpserverlib, which executes the
// commands.
//
// A [Server] makes a [Conn] of each connection that the library accepts (Settings.Listener). It does three things:
//
//   - Lines: the library gets whole command lines, one for each Read, only verbs that are in the table (verbs.go), and
//     in the form that it understands. A few commands are answered here (answers.go), because the library lacks them or
//     cannot know the answer.
//   - Words: the driver may say the reply of a [Command] (Command.Say). It is written in place of the library's.
//   - Life: a Conn knows when the client is gone, also while a command or a transfer runs; it ends idle connections and
//     those that are to stop, and it tells the command under way what happens (Command.OnInterrupt, Command.Wait).
//
// [Ports] are the passive ports: each belongs to the connection that was told of it.
//
// Guarantees: only complete lines are acted on. Each command gets its replies in the order of the commands, also
// when transfers, ABOR and commands that wait are pipelined. While a transfer runs or a command waits the connection
// is still read. [Handler] learns of the end exactly once, when the last transfer is over and before the library does. A reply cannot contain a line end
// or a NUL that its text brought in.
//
// Caveats: a connection that ends without FIN or RST (a machine switched off, a cut cable) is noticed only when TCP gives
// up, see Options.UserTimeout. While the library executes any other command the connection is not read. A client that
// sends 64 KiB of commands behind a transfer is sent away. Gone and CatchUp need Linux; elsewhere only what was read counts.
//
// The package depends on unwritten habits of ftpserverlib v0.32.3: it calls Read only when it is done with the line
// before, or has started a transfer; it writes each reply line with its end in one Write; a transfer that is not aborted by
// ABOR gets exactly one final reply. The driver's contract tests check them.
//
// Start reading at Conn.Read and at the table in verbs.go.
package control
