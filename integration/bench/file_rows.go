//go:build linux

package main

import (
	"context"
	"fmt"
)

// asciiSize is the size of files in ASCII, MiB: the slowest takes seconds for so many.
const asciiSize = 16

func fileRows(o options) []row {
	small, large := "Files of 1 KiB per second, a data connection for each", "Large files, MB/s"
	rows := []row{
		smallFiles(o, small, up, 1), smallFiles(o, small, up, 8), smallFiles(o, small, down, 1), smallFiles(o, small, down, 8),
	}
	return append(rows, largeFiles(o, large)...)
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

func smallRow(w way, n int) string { return fmt.Sprintf("1 KiB %s, %d conn.", w, n) }

func smallFiles(o options, title string, w way, n int) row {
	name := smallRow(w, n)
	return row{
		name: name, needs: canStore,
		columns: []column{
			{Title: title, Heading: name, Unit: perSec, Ratio: true},
			{Title: title + ": processor time of the server for one", Heading: name, Unit: nanoseconds, Ratio: true},
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
