// Package harness is what the tests of built ftplockds share: those of integration, and those of integration/cluster.
//
// Its parts are a Session (a control connection that a test speaks line by line), a LogBuffer, the Clock of a server that is built with the
// tag testclock, Overlay (the sources of a server that lacks its guards) and a Record: what clients at random did and were told, which
// Operations makes into what porcupine checks.
//
// Only tests import it. Nothing of it waits for ever; what a server does not do within Patience it does not do.
//
// Start reading at session.go and history.go.
package harness
