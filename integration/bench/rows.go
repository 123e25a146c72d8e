//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
)

// groupNames are the words for -rows, in the order of the report.
var groupNames = []string{"locks", "contended", "login", "files", "tls", "memory"}

// group is one start of each server and what is measured with it.
type group struct {
	name string
	rows []row
	tls  bool // the servers are started with a certificate
	once bool // one round says it all
	// modes of ftplockd that take part
	modes []mode
}

// mode is how ftplockd is set up: locks.directories, locks.durable and files.durable.
type mode struct {
	name                                    string
	directories, durableLocks, durableFiles bool
}

// ability is what a measurement needs and a server may not have.
type ability uint

const (
	canLogin ability = 1 << iota // and answer lines
	canLock                      // MKD tells one winner
	canStore                     // passive transfers
	canASCII                     // with conversion
	canTLS
	canFTP = canLogin | canLock | canStore | canASCII | canTLS
)

// row is one measurement. It gives a value for each of its columns.
type row struct {
	name    string
	needs   ability
	columns []column
	run     func(context.Context, *process) ([]float64, error)
}

// column is where a value stands in the report: columns of one title make one table.
type column struct {
	title   string
	heading string
	format  func(float64) string
	ratio   bool // to vsftpd
}

func (g group) rounds(o options) int {
	if g.once {
		return 1
	}
	return o.rounds
}

// selected returns the groups to be measured.
func (o options) selected() []group {
	lockModes := []mode{
		{name: "ftplockd, directories = false, durable = false"},
		{name: "ftplockd, directories = false, durable = true", durableLocks: true},
		{name: "ftplockd, directories = true, durable = false", directories: true},
		{name: "ftplockd, directories = true, durable = true", directories: true, durableLocks: true},
	}
	fileModes := []mode{
		{name: "ftplockd, durable = false", directories: true, durableLocks: true},
		{name: "ftplockd, durable = true", directories: true, durableLocks: true, durableFiles: true},
	}
	usual := []mode{{name: "ftplockd", directories: true, durableLocks: true, durableFiles: true}} // its defaults
	all := []group{
		{name: "locks", rows: lockRows(o), modes: lockModes},
		{name: "contended", rows: contendedRows(o), modes: lockModes},
		{name: "login", rows: loginRows(o), modes: usual},
		{name: "files", rows: fileRows(o), modes: fileModes},
		{name: "tls", rows: tlsRows(o), modes: fileModes, tls: true},
		{name: "memory", rows: memoryRows(o), modes: usual, once: true},
	}
	return slices.DeleteFunc(all, func(g group) bool { return !slices.Contains(o.groups, g.name) || len(g.rows) == 0 })
}

func lockRows(o options) (rows []row) {
	for _, n := range o.connections {
		heading := fmt.Sprintf("%d conn.", n)
		rows = append(rows, row{
			name: fmt.Sprintf("%d pairs", n), needs: canLogin,
			columns: []column{
				{title: "Locks: MKD+RMD pairs per second, each connection with a name of its own", heading: heading, format: count, ratio: true},
				{title: "Locks: time of a pair, median", heading: heading, format: short},
				{title: "Locks: time of a pair, 99th percentile", heading: heading, format: short},
				{title: "Locks: processor time of the server for a pair", heading: heading, format: short, ratio: true},
			},
			run: func(ctx context.Context, p *process) ([]float64, error) { return ownLocks(ctx, p, n, o.time) },
		})
	}
	return rows
}

func contendedRows(o options) []row {
	title := fmt.Sprintf("One lock, %d clients that try again at once when it is held", o.contenders)
	return []row{{
		name: "one name", needs: canLock,
		columns: []column{
			{title: title, heading: "turns/s", format: count, ratio: true},
			{title: title, heading: "clients with a turn", format: count},
			{title: title, heading: "tries/s", format: count},
		},
		run: func(ctx context.Context, p *process) ([]float64, error) { return oneLock(ctx, p, o.contenders, o.time) },
	}}
}

func loginRows(o options) []row {
	title := fmt.Sprintf("Logins: connect, USER, PASS, QUIT; %d at once", atOnce)
	return []row{{
		name: "logins", needs: canLogin,
		columns: []column{
			{title: title, heading: "per second", format: count, ratio: true},
			{title: title, heading: "median", format: short},
			{title: title, heading: "99th percentile", format: short},
		},
		run: func(ctx context.Context, p *process) ([]float64, error) { return logins(ctx, p, o.time) },
	}}
}

func fileRows(o options) []row {
	small := "Files of 1 KiB per second, a data connection for each"
	large := "Large files, MB/s"
	rows := []row{
		smallFiles(o, small, up, 1), smallFiles(o, small, up, 8), smallFiles(o, small, down, 1), smallFiles(o, small, down, 8),
		largeFile(o, large, job{way: up, size: 1 << 20}), largeFile(o, large, job{way: down, size: 1 << 20}),
	}
	if o.large > 0 {
		rows = append(rows, largeFile(o, large, job{way: up, size: o.large << 20}), largeFile(o, large, job{way: down, size: o.large << 20}))
	}
	return append(rows, largeFile(o, large, job{way: up, size: 16 << 20, ascii: true}), largeFile(o, large, job{way: down, size: 16 << 20, ascii: true}))
}

func tlsRows(o options) []row {
	title := "Under TLS (PROT P)"
	rows := []row{
		smallFiles(o, title, up, 1), smallFiles(o, title, down, 1),
		largeFile(o, title, job{way: up, size: 64 << 20}), largeFile(o, title, job{way: down, size: 64 << 20}),
	}
	for i := range rows {
		rows[i].needs |= canTLS
		rows[i].columns[0].heading += map[bool]string{true: ", files/s", false: ", MB/s"}[i < 2]
	}
	return rows
}

func smallFiles(o options, title string, w way, n int) row {
	heading := fmt.Sprintf("1 KiB %s, %d conn.", w, n)
	return row{
		name: heading, needs: canStore,
		columns: []column{
			{title: title, heading: heading, format: count, ratio: true},
			{title: title + ": processor time of the server for one", heading: heading, format: short, ratio: true},
		},
		run: func(ctx context.Context, p *process) ([]float64, error) {
			perSecond, cpu, err := transfers(ctx, p, job{way: w, size: 1 << 10}, n, o.time)
			return []float64{perSecond, cpu}, err
		},
	}
}

func largeFile(o options, title string, j job) row {
	needs := canStore
	if j.ascii {
		needs |= canASCII
	}
	return row{
		name: j.String(), needs: needs,
		columns: []column{
			{title: title, heading: j.String(), format: count, ratio: true},
			{title: title + ": processor time of the server for a MB", heading: j.String(), format: short, ratio: true},
		},
		run: func(ctx context.Context, p *process) ([]float64, error) {
			perSecond, cpu, err := transfers(ctx, p, j, 1, o.time)
			megabytes := float64(j.size) / 1e6
			return []float64{perSecond * megabytes, cpu / megabytes}, err
		},
	}
}

func memoryRows(o options) []row {
	if o.idle == 0 {
		return nil
	}
	title := fmt.Sprintf("Memory (PSS of all processes of the server) with %d idle sessions", o.idle)
	return []row{{
		name: "idle", needs: canLogin,
		columns: []column{
			{title: title, heading: "without any, MiB", format: fine},
			{title: title, heading: "with them, MiB", format: fine},
			{title: title, heading: "more for each, KiB", format: fine, ratio: true},
		},
		run: func(ctx context.Context, p *process) ([]float64, error) { return idleMemory(ctx, p, o.idle) },
	}}
}
