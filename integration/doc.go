// Package integration tests the built ftplockd as its users have it: a child process, spoken to over loopback
// by real FTP clients, killed, stopped, reloaded and started again.
//
// It has no API. Its parts are a server (a child process with a directory of its own), a session (a control
// connection that a test speaks line by line), a program (another child process) and the programs in testdata: clients in
// Perl, Python and PHP, and those of the article that asked for such a server, which must work as they are.
//
// Guarantees: every process that a test starts is ended by it, also when the test is killed (on Linux, and but for the
// server that "go run" starts for the README); nothing but 127.0.0.1, [::1] and a pair of network namespaces that are
// joined to each other alone is spoken to; everything has a deadline; a server that reports a data race or an error that
// its test did not ask for fails that test.
//
// Caveats: clients that are not installed, and what only root may do, are skipped, unless FTPLOCKD_REQUIRE_CLIENTS=1 is set;
// counts are short, unless -long is given, which takes half an hour. A test that is killed leaves
// its network namespaces behind.
//
// Start reading at server_test.go; harness is what cluster uses, too, bench is a program of its own, and etcdtest runs clusters of etcd for the tests of others.
package integration
