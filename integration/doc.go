// Package integration tests the built ftplockd and netlock as users have them: child processes, real FTP clients over loopback, kills, full disks,
// reloads and restarts. It contains tests only.
//
// Most tests are scripts in testdata: server has those with clients of a server, netlock those with netlock, examples those with the programs in
// examples/. script_test.go has their commands. The other tests need a kill, a disk of their own, random faults, or limits in time.
//
// Guarantees: each process that a test starts ends with it, also when the test is killed (on Linux). Tests use 127.0.0.1, [::1] and
// network namespaces of their own only. Everything has a deadline. A server whose log has a data race, or an error that its test does not expect,
// fails the test.
//
// Caveats: without FTPLOCKD_REQUIRE_CLIENTS=1 tests skip clients that are not installed, and what needs root. Without -long the counts are small;
// with it the tests take half an hour. A killed test leaves its network namespaces behind.
//
// Start reading at server_test.go and script_test.go. Package clients has the table of clients, deployments that of deployment programs, cluster the
// tests of several servers, and harness what these packages share.
package integration
