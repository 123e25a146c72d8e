//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// The words for -rows, which are the names of groups.
const (
	locksGroup     = "locks"
	contendedGroup = "contended"
	loginGroup     = "login"
	filesGroup     = "files"
	tlsGroup       = "tls"
	memoryGroup    = "memory"
)

// groupNames are in the order of the report.
var groupNames = []string{locksGroup, contendedGroup, loginGroup, filesGroup, tlsGroup, memoryGroup}

// group is one start of each server and what is measured with it.
type group struct {
	name  string // of groupNames; there may be several of one name
	title string // for progress and notes
	place place
	rows  []row
	tls   bool // the servers are started with a certificate
	pace  pace
	modes []mode // of ftplockd that take part
}

// pace is in how many of the rounds a group is measured.
type pace int

const (
	always pace = iota
	halfAsOften
	once
)

// mode is how ftplockd is set up: locks.directories, locks.durable and files.durable.
type mode struct {
	name                                    string
	directories, durableLocks, durableFiles bool
}

// The names of ftplockd in its modes. Of those in lockModes both kinds of durable are as the name says, of those in
// fileModes only that of files, and locks are as they are by default.
const (
	usualName       = "ftplockd" // as it is when nobody configures it: directories = true, durable = true
	bareLocks       = "ftplockd, directories = false, durable = false"
	durableLocks    = "ftplockd, directories = false, durable = true"
	realDirectories = "ftplockd, directories = true, durable = false"
	durableBoth     = "ftplockd, directories = true, durable = true"
	quickFiles      = "ftplockd, durable = false"
	durableFiles    = "ftplockd, durable = true"
)

func lockModes() []mode {
	return []mode{
		{name: bareLocks},
		{name: durableLocks, durableLocks: true, durableFiles: true},
		{name: realDirectories, directories: true},
		{name: durableBoth, directories: true, durableLocks: true, durableFiles: true},
	}
}

func fileModes() []mode {
	return []mode{
		{name: quickFiles, directories: true, durableLocks: true},
		{name: durableFiles, directories: true, durableLocks: true, durableFiles: true},
	}
}

func usualMode() mode {
	return mode{name: usualName, directories: true, durableLocks: true, durableFiles: true}
}

// ability is what a measurement needs and a server may not have.
type ability uint

const (
	canLogin      ability = 1 << iota // and answer lines
	canLock                           // MKD tells one winner
	canStoreSmall                     // passive transfers of small files
	canStore                          // of all files
	canASCII                          // with conversion
	canTLS
	canWait // SITE WAIT
	canFTP  = canLogin | canLock | canStoreSmall | canStore | canASCII | canTLS
)

// row is one measurement. It gives a value for each of its columns.
type row struct {
	name    string
	needs   ability
	columns []column
	run     func(context.Context, *process) ([]float64, error)
}

func (g group) rounds(o options) int {
	switch g.pace {
	case once:
		return 1
	case halfAsOften:
		return (o.rounds + 1) / 2
	}
	return o.rounds
}

// selected returns the groups to be measured: locks, and small files of programs, in every place, the rest in the first.
func (o options) selected(places []place) []group {
	var all []group
	for _, p := range places {
		all = append(all, group{name: locksGroup, title: "locks", place: p, rows: lockRows(o, p), modes: lockModes()})
	}
	first := places[0]
	all = append(all,
		group{name: contendedGroup, title: "one lock", place: first, rows: contendedRows(o), modes: lockModes(), pace: halfAsOften},
		group{name: loginGroup, title: "logins", place: first, rows: loginRows(o), modes: []mode{usualMode()}},
		group{name: filesGroup, title: "files", place: first, rows: fileRows(o), modes: fileModes(), pace: halfAsOften},
	)
	for _, p := range places[1:] {
		all = append(all, group{
			name: filesGroup, title: "small files", place: p, rows: programRows(o, " on "+p.fs), modes: fileModes()[:1], pace: halfAsOften,
		})
	}
	all = append(all,
		group{name: tlsGroup, title: "TLS", place: first, rows: tlsRows(o), modes: fileModes(), tls: true, pace: halfAsOften},
	)
	for _, n := range o.idle {
		all = append(all, group{
			name: memoryGroup, title: fmt.Sprintf("%d idle sessions", n), place: first, rows: memoryRows(n, o.time),
			modes: []mode{{name: bareLocks}, usualMode()}, pace: once,
		})
	}
	if o.waiting > 0 {
		all = append(all, group{
			name: memoryGroup, title: fmt.Sprintf("%d waiting sessions", o.waiting), place: first, rows: heldRows(o),
			modes: []mode{{name: bareLocks}, usualMode()}, pace: once,
		})
	}
	return slices.DeleteFunc(all, func(g group) bool { return !slices.Contains(o.groups, g.name) })
}

func pairsRow(connections int) string { return fmt.Sprintf("%d conn.", connections) }

func lockRows(o options, p place) (rows []row) {
	title := "Locks on " + p.fs
	for _, n := range o.connections {
		heading := pairsRow(n)
		rows = append(rows, row{
			name: heading, needs: canLogin,
			columns: []column{
				{Title: title + ": MKD+RMD pairs per second, each connection with a name of its own", Heading: heading, Unit: perSec, Ratio: true},
				{Title: title + ": time of a pair, median", Heading: heading, Unit: nanoseconds},
				{Title: title + ": time of a pair, 99th percentile", Heading: heading, Unit: nanoseconds},
				{Title: title + ": processor time of the server for a pair", Heading: heading, Unit: nanoseconds, Ratio: true},
			},
			run: func(ctx context.Context, p *process) ([]float64, error) { return ownLocks(ctx, p, n, o.time) },
		})
	}
	return rows
}

// The rows of one lock for all: clients that try again at once, and clients that have the server let them wait.
const tryingRow, waitingRow = "trying", "waiting"

// Columns of those rows.
const (
	clientsWithATurn = 1
	fewestTurns      = 2
	triesInVain      = 4
)

func contendedRows(o options) []row {
	of := func(name, title string, needs ability, wait bool) row {
		return row{
			name: name, needs: needs,
			columns: []column{
				{Title: title, Heading: "turns/s", Unit: perSec, Ratio: true},
				{Title: title, Heading: "clients with a turn", Unit: things},
				{Title: title, Heading: "fewest turns of one", Unit: things},
				{Title: title, Heading: "most turns of one", Unit: things},
				{Title: title, Heading: "tries in vain, %", Unit: percent},
			},
			run: func(ctx context.Context, p *process) ([]float64, error) {
				return oneLock(ctx, p, o.contenders, 5*o.time, wait)
			},
		}
	}
	return []row{
		of(tryingRow, fmt.Sprintf("One lock, %d clients that try again at once when it is held", o.contenders), canLock, false),
		of(waitingRow, fmt.Sprintf("One lock, %d clients that wait for it (SITE WAIT)", o.contenders), canWait, true),
	}
}

const loginsRow = "logins"

func loginRows(o options) []row {
	title := fmt.Sprintf("Logins: connect, USER, PASS, QUIT; %d at once", atOnce)
	return []row{{
		name: loginsRow, needs: canLogin,
		columns: []column{
			{Title: title, Heading: "per second", Unit: perSec, Ratio: true},
			{Title: title, Heading: "median", Unit: nanoseconds},
			{Title: title, Heading: "99th percentile", Unit: nanoseconds},
		},
		run: func(ctx context.Context, p *process) ([]float64, error) { return logins(ctx, p, o.time) },
	}}
}

func idleRow(n int) string { return fmt.Sprintf("%d idle", n) }

// heldRow is the row of idle sessions beside which others wait.
func heldRow(idle, waiting int) string { return fmt.Sprintf("%d idle, %d waiting", idle, waiting) }

func memoryRows(n int, d time.Duration) []row {
	title := fmt.Sprintf("%d idle sessions: memory (PSS of all processes of the server), and what one more client sees of them", n)
	return []row{{
		name: idleRow(n), needs: canLogin,
		columns: []column{
			{Title: title, Heading: "for each, KiB", Unit: kibibytes, Ratio: true},
			{Title: title, Heading: "MKD meanwhile, median", Unit: nanoseconds},
			{Title: title, Heading: "99th percentile", Unit: nanoseconds},
			{Title: title, Heading: "all, MiB", Unit: mebibytes},
		},
		run: func(ctx context.Context, p *process) ([]float64, error) { return idleSessions(ctx, p, n, d) },
	}}
}

// heldRows are those with most idle sessions, beside which others wait. They have a start of their own: a server that
// had other sessions before has memory left over from them.
func heldRows(o options) []row {
	n := slices.Max(o.idle)
	title := fmt.Sprintf("%d more sessions that wait for one lock (SITE WAIT), beside %d idle ones", o.waiting, n)
	return []row{{
		name: heldRow(n, o.waiting), needs: canWait,
		columns: []column{
			{Title: title, Heading: "for each, KiB", Unit: kibibytes},
			{Title: title, Heading: "MKD meanwhile, median", Unit: nanoseconds},
			{Title: title, Heading: "99th percentile", Unit: nanoseconds},
			{Title: title, Heading: "all, MiB", Unit: mebibytes},
		},
		run: func(ctx context.Context, p *process) ([]float64, error) {
			return waitingSessions(ctx, p, n, o.waiting, o.time)
		},
	}}
}
