// Package cluster tests several built ftplockds that stand by for each other on a real etcd, with real FTP clients, while
// servers and members are killed, stopped and cut off.
//
// It has no API. Its parts are a cluster (etcd, a relay before each member for each server, the servers and a
// supervisor that starts again what has ended, as a service manager does) and a history (clients at random, which package harness
// has, faults at random, and what both checkers say of it: porcupine of what the clients saw, and the checker of what etcd has kept).
//
// Short runs are the default. -cluster.long says how long the history lasts, -cluster.figures measures times of failovers.
//
// Start reading at server_test.go.
package cluster
