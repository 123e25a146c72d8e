//go:build linux

package main

import (
	"fmt"
	"slices"
	"time"
)

// sizes is how much is done. Files are in bytes.
type sizes struct {
	time              time.Duration // of one measurement
	large, ascii, tls int64
	idle              int
	pause             time.Duration // for memory to be given back
}

func (o options) sizes() sizes {
	if o.short {
		return sizes{time: 50 * time.Millisecond, large: 4 << 20, ascii: 2 << 20, tls: 4 << 20, idle: min(o.idle, 50), pause: 100 * time.Millisecond}
	}
	return sizes{time: 400 * time.Millisecond, large: 512 << 20, ascii: 64 << 20, tls: 256 << 20, idle: o.idle, pause: 2 * time.Second}
}

// The modes of ftplockd. It is in byDefault if nobody configures it.
func fastest() mode   { return mode{} }
func byDefault() mode { return mode{directories: true, durable: true} }
func allModes() []mode {
	return []mode{fastest(), {durable: true}, {directories: true}, byDefault()}
}

// measurements returns all those that are wanted, with their rows.
func measurements(o options) []*measurement {
	s := o.sizes()
	all := slices.Concat(lockMeasurements(s), fileMeasurements(s), []*measurement{idleMeasurement(s)})
	for _, m := range all {
		m.rows = slices.DeleteFunc(m.rows, func(r *row) bool { return !o.only.MatchString(r.name) })
	}
	return slices.DeleteFunc(all, func(m *measurement) bool { return len(m.rows) == 0 })
}

// The names of lock rows.
func pairsName(connections int) string { return counted("lock pairs", connections) }

const handOverName = "hand-over"

func inMode(name string, m mode) string { return name + ", " + m.String() }

func lockMeasurements(s sizes) (all []*measurement) {
	for _, n := range []int{1, 8, 64, 256} {
		m := &measurement{name: pairsName(n), others: others(), run: lockPairs(n, s.time)}
		for _, in := range allModes() {
			m.rows = append(m.rows, &row{name: inMode(m.name, in), unit: "pairs/s", mode: in, connections: n, short: n == 64 && (in == fastest() || in == byDefault())})
		}
		all = append(all, m)
	}
	handOvers := &measurement{name: handOverName, run: handOver(s.time)}
	for _, in := range []mode{fastest(), byDefault()} {
		handOvers.rows = append(handOvers.rows, &row{name: inMode(handOverName, in), unit: "ms", mode: in, short: true})
	}
	logins := &measurement{name: counted("logins", 16), others: []string{vsftpd, bare}, run: logins(16, s.time)}
	logins.rows = []*row{{name: logins.name, unit: "logins/s", mode: byDefault(), short: true}}
	return append(all, handOvers, logins)
}

func fileMeasurements(s sizes) (all []*measurement) {
	add := func(j job, connections int) {
		m := &measurement{name: counted(j.String(), connections), others: []string{vsftpd, bare}, tls: j.tls, run: transfers(j, connections, s.time)}
		r := &row{name: m.name, unit: "MB/s", mode: byDefault(), file: true, short: connections == 1 && j.size != 1<<20 && !j.announced && !j.ascii && !j.tls}
		if j.small() {
			m.others, r.unit = others(), "files/s"
		}
		m.rows = []*row{r}
		all = append(all, m)
	}
	both := func(j job, connections int) {
		for _, j.way = range []way{up, down} {
			add(j, connections)
		}
	}
	both(job{size: 1 << 10}, 1)
	both(job{size: 1 << 10}, 16)
	add(job{way: up, size: 1 << 10, announced: true}, 1)
	both(job{size: 1 << 20}, 1)
	both(job{size: 1 << 20}, 16)
	both(job{size: s.large}, 1)
	both(job{size: s.ascii, ascii: true}, 1)
	both(job{size: s.tls, tls: true}, 1)
	return all
}

const idleName = "memory of an idle session"

func idleMeasurement(s sizes) *measurement {
	r := &row{name: fmt.Sprintf("%s, one of %d", idleName, s.idle), unit: "KiB", mode: byDefault(), short: true}
	return &measurement{name: idleName, rows: []*row{r}, others: []string{vsftpd, bare}, once: true, run: idleMemory(s.idle, s.pause)}
}

func counted(what string, connections int) string {
	if connections == 1 {
		return what + ", 1 connection"
	}
	return fmt.Sprintf("%s, %d connections", what, connections)
}
