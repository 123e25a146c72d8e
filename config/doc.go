// Package config is the configuration of ftplockd: what can be set, what it is
// when nobody sets it, and which settings make no sense.
//
// Its types: [Config] is the whole of it, with a struct for each section of the
// file ([FTP], [TLS], [Files], [Locks]), an [Account] for each [[account]] and a
// [Rule] for each [[lock]]. [Errors] lists all that is wrong with a file, one
// [Error] with file, line and key for each. A [Verifier] checks passwords.
//
// What is promised: a Config that [Load] or [Parse] returned holds only values
// that the server can work with, already in their own types (durations, ports,
// networks), so that nobody parses them again. No key is ignored: one that does
// not exist, or that was removed, is an error. Errors are reported at once, by file
// and line, and none of them shows a password or its hash; only a syntax error ends
// the reading.
// Nothing here is global; to reload, load again and call [Config.KeepRestartKeys].
//
// What is not: nothing is said about the world outside the file. Whether an
// address can be listened on, a certificate be read or a directory be made shows
// when the server starts.
//
// Start reading at [Config] and [Default]; [Example] is the same as a file.
package config
