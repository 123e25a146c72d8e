// Package config is the configuration of ftplockd: its keys, their defaults, and the checks of their values.
//
// [Config] is the whole configuration. It has a struct for each section of the file ([FTP], [TLS], [Files], [Locks]), an [Account] for each
// [[account]] and a [Rule] for each [[lock]]. [Errors] lists all errors of a file, an [Error] with file, line and key for each. A [Verifier] checks
// passwords.
//
// Guarantees: a Config of [Load] or [Parse] contains only values that the server can use, in their own types (durations, ports, networks). No key is
// ignored: an unknown or removed key is an error. All errors are reported at once, except that a syntax error ends the reading. No error contains a
// password or its hash. The package has no state: to reload, load again and call [Config.KeepRestartKeys].
//
// Caveats: outside the file, the package reads only symbolic links. The start of the server finds an address in use, or a certificate that cannot be
// read.
//
// Start reading at [Config] and [Default]; [Example] is the same as a file.
package config
