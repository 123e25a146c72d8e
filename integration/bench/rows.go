//go:build linux

package main

import (
	"fmt"
	"slices"
	"time"
)

// sizes is the amount of work. Sizes of files are in bytes.
type sizes struct {
	time              time.Duration // of one measurement
	large, ascii, tls int64
	idle              int
	pause             time.Duration // for the server to return memory
	traced            int           // lock pairs of each connection under strace
}

func (o options) sizes() sizes {
	if o.short {
		return sizes{time: 50 * time.Millisecond, large: 4 << 20, ascii: 2 << 20, tls: 4 << 20, idle: min(o.idle, 50), pause: 100 * time.Millisecond, traced: 10}
	}
	return sizes{time: 500 * time.Millisecond, large: 512 << 20, ascii: 64 << 20, tls: 256 << 20, idle: o.idle, pause: 2 * time.Second, traced: 30}
}

// The modes of ftplockd.
func fastest() mode   { return mode{} }
func byDefault() mode { return mode{directories: true, durable: true} }
func allModes() []mode {
	return []mode{fastest(), {durable: true}, {directories: true}, byDefault()}
}

// deepNames is the number of directories above the lock in the rows of deep names.
const deepNames = 12

// measurements returns the selected measurements with their rows.
func measurements(o options) []*measurement {
	s := o.sizes()
	all := slices.Concat(commandMeasurements(s), fileMeasurements(s), []*measurement{idleMeasurement(s)})
	for _, m := range all {
		m.rows = slices.DeleteFunc(m.rows, func(r *row) bool { return !o.only.MatchString(r.name) })
	}
	return slices.DeleteFunc(all, func(m *measurement) bool { return len(m.rows) == 0 })
}

// The names of rows.
const (
	handOverName  = "hand-over"
	noopName      = "NOOP, 16 connections"
	deepName      = "lock pairs 12 directories deep, 16 connections"
	callsName     = "system calls of a lock pair, 16 connections"
	deepCallsName = "system calls of a lock pair 12 directories deep, 16 connections"
	idleName      = "memory of an idle session"
)

func pairsName(connections int) string { return counted("lock pairs", connections) }

func inMode(name string, m mode) string { return name + ", " + m.String() }

func commandMeasurements(s sizes) (all []*measurement) {
	add := func(name, unit string, do work, others []string, modes ...mode) {
		m := &measurement{name: name, others: others, run: do}
		for _, in := range modes {
			m.rows = append(m.rows, &row{name: inMode(name, in), unit: unit, mode: in})
		}
		all = append(all, m)
	}
	add(noopName, "commands/s", noops(16, s.time), others(), fastest())
	for _, n := range []int{1, 8, 64, 256} {
		add(pairsName(n), "pairs/s", lockPairs(n, 0, s.time), others(), allModes()...)
	}
	add(deepName, "pairs/s", lockPairs(16, deepNames, s.time), others(), fastest(), byDefault())
	add(callsName, "calls", pairCalls(0, s.traced), others(), fastest(), byDefault())
	add(deepCallsName, "calls", pairCalls(deepNames, s.traced), others(), fastest(), byDefault())
	add(handOverName, "ms", handOver(s.time), nil, fastest(), byDefault())
	return all
}

func fileMeasurements(s sizes) (all []*measurement) {
	add := func(j job, connections int) {
		m := &measurement{name: counted(j.String(), connections), others: others(), tls: j.tls, run: transfers(j, connections, s.time)}
		r := &row{name: m.name, unit: "MB/s", mode: byDefault(), file: !j.small()}
		if j.small() {
			r.unit = "files/s"
		}
		m.rows = []*row{r}
		all = append(all, m)
	}
	both := func(j job, connections int) {
		for _, j.way = range []way{up, down} {
			add(j, connections)
		}
	}
	for _, n := range []int{1, 16} {
		both(job{size: 1 << 10}, n)
		add(job{way: up, size: 1 << 10, announced: true}, n)
		both(job{size: 1 << 20}, n)
		add(job{way: up, size: 1 << 20, announced: true}, n)
	}
	both(job{size: s.large}, 1)
	both(job{size: s.ascii, ascii: true}, 1)
	both(job{size: s.tls, tls: true}, 1)
	return all
}

func idleMeasurement(s sizes) *measurement {
	r := &row{name: fmt.Sprintf("%s, one of %d", idleName, s.idle), unit: "KiB", mode: byDefault()}
	return &measurement{name: idleName, rows: []*row{r}, others: others(), once: true, run: idleMemory(s.idle, s.pause)}
}

func counted(what string, connections int) string {
	if connections == 1 {
		return what + ", 1 connection"
	}
	return fmt.Sprintf("%s, %d connections", what, connections)
}
