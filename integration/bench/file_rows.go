//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
)

// asciiSize is the size of files in ASCII, MiB: the slowest takes seconds for so many.
const asciiSize = 16

func fileRows(o options) []row {
	small, large := "Files of 1 KiB per second, a data connection for each", "Large files, MB/s"
	rows := []row{
		smallFiles(o, small, up, 1), smallFiles(o, small, up, 8), smallFiles(o, small, down, 1), smallFiles(o, small, down, 8),
	}
	return slices.Concat(rows, programRows(o, ""), largeFiles(o, large))
}

// programRows are those of small files by programs, somewhere.
func programRows(o options, where string) (rows []row) {
	for _, w := range []way{up, down} {
		for _, n := range []int{1, 8} {
			rows = append(rows, smallByPrograms(o, "Files of 1 KiB per second"+where+", clients that are programs of their own", w, n))
		}
	}
	return rows
}

func tlsRows(o options) []row {
	small, large := "Under TLS (PROT P): files of 1 KiB per second", "Under TLS (PROT P): large files, MB/s"
	rows := append([]row{smallFiles(o, small, up, 1), smallFiles(o, small, down, 1)}, largeFiles(o, large)...)
	for i := range rows {
		rows[i].needs |= canTLS
	}
	return rows
}

func largeFiles(o options, title string) []row {
	rows := []row{largeFile(o, title, job{way: up, size: 1 << 20}), largeFile(o, title, job{way: down, size: 1 << 20})}
	if o.large > 0 {
		rows = append(rows, largeFile(o, title, job{way: up, size: o.large << 20}), largeFile(o, title, job{way: down, size: o.large << 20}))
	}
	return append(rows, largeFile(o, title, job{way: up, size: asciiSize << 20, ascii: true}), largeFile(o, title, job{way: down, size: asciiSize << 20, ascii: true}))
}

// smallFile is how the names of rows of small files begin.
const smallFile = "1 KiB "

// smallRow is the row with so many connections of this process.
func smallRow(w way, n int) string { return fmt.Sprintf("%s%s, %d conn.", smallFile, w, n) }

// programRow is the row with so many programs, which have a connection each.
func programRow(w way, n int) string {
	if n == 1 {
		return fmt.Sprintf("%s%s, 1 program", smallFile, w)
	}
	return fmt.Sprintf("%s%s, %d programs", smallFile, w, n)
}

func smallFiles(o options, title string, w way, n int) row {
	name := smallRow(w, n)
	return row{
		name: name, needs: canStoreSmall, columns: smallColumns(title, name),
		run: func(ctx context.Context, p *process) ([]float64, error) {
			perSecond, cpu, err := transfers(ctx, p, job{way: w, size: smallSize}, n, o.time)
			return []float64{perSecond, cpu}, err
		},
	}
}

func smallByPrograms(o options, title string, w way, n int) row {
	name := programRow(w, n)
	return row{
		name: name, needs: canStoreSmall, columns: smallColumns(title, name),
		run: func(ctx context.Context, p *process) ([]float64, error) {
			perSecond, cpu, err := byPrograms(ctx, p, w, n, o.time)
			return []float64{perSecond, cpu}, err
		},
	}
}

func smallColumns(title, name string) []column {
	return []column{
		{Title: title, Heading: name, Unit: perSec, Ratio: true},
		{Title: title + ": processor time of the server for one", Heading: name, Unit: nanoseconds, Ratio: true},
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
			{Title: title, Heading: j.String(), Unit: megabytesPerSec, Ratio: true},
			{Title: title + ": processor time of the server for a MB", Heading: j.String(), Unit: nanoseconds, Ratio: true},
		},
		run: func(ctx context.Context, p *process) ([]float64, error) {
			perSecond, cpu, err := transfers(ctx, p, j, 1, o.time)
			megabytes := float64(j.size) / 1e6
			return []float64{perSecond * megabytes, cpu / megabytes}, err
		},
	}
}
