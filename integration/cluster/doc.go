// Package cluster tests several built ftplockds that stand by for each other on a real etcd, with real FTP clients. The tests kill, stop and
// cut off servers and members of etcd.
//
// It has no API. A cluster is etcd, the servers, a relay from each server to each member, and a supervisor that starts ended servers again, as a
// service manager does. A history is random clients, random faults, and two checks: porcupine checks the clients' replies, and a
// keeper checks every change that etcd recorded.
//
// Short runs are the default. -cluster.long sets the duration of histories, -cluster.figures measures rates and failovers.
//
// Start reading at server_test.go.
package cluster
