//go:build linux

package main

import (
	"fmt"
	"io"
	"strings"
)

// shortRow is a line of the README's table. ftplockd has two columns there: as it syncs, and as it does not.
type shortRow struct {
	text             string
	at               spot
	synced, unsynced string // names of ftplockd's modes; "": none
}

func (r *report) shortRows() (all []shortRow) {
	disk, many := r.disk(), pairsRow(64)
	for _, place := range []string{disk, inMemory} {
		at := spot{group: locksGroup, place: place, row: many}
		text := fmt.Sprintf("lock pairs/s, 64 connections, %s", place)
		all = append(all,
			shortRow{text + ", `directories = false`", at, durableLocks, bareLocks},
			shortRow{text + ", `directories = true`", at, durableBoth, realDirectories})
	}
	all = append(all,
		shortRow{"one lock, 128 busy clients: how many get a turn", spot{group: contendedGroup, row: tryingRow, column: clientsWithATurn}, durableBoth, bareLocks},
		shortRow{"one lock: tries in vain, %", spot{group: contendedGroup, row: tryingRow, column: triesInVain}, durableBoth, bareLocks},
		shortRow{"logins/s, 16 at once", spot{group: loginGroup, row: loginsRow}, usualName, ""},
	)
	for _, place := range []string{disk, inMemory} {
		for _, w := range []way{up, down} {
			text, at := fmt.Sprintf("1 KiB %s, %s, files/s", w, place), spot{group: filesGroup, place: place, row: programRow(w, 1)}
			all = append(all, shortRow{text, at, durableFiles, quickFiles})
		}
	}
	for _, t := range []struct{ text, group, row string }{
		{"512 MiB up, MB/s", filesGroup, job{way: up, size: 512 << 20}.String()},
		{"512 MiB down, MB/s", filesGroup, job{way: down, size: 512 << 20}.String()},
		{"512 MiB up, TLS, MB/s", tlsGroup, job{way: up, size: 512 << 20}.String()},
		{"512 MiB down, TLS, MB/s", tlsGroup, job{way: down, size: 512 << 20}.String()},
		{"ASCII up, MB/s", filesGroup, job{way: up, size: asciiSize << 20, ascii: true}.String()},
		{"ASCII down, MB/s", filesGroup, job{way: down, size: asciiSize << 20, ascii: true}.String()},
	} {
		all = append(all, shortRow{t.text, spot{group: t.group, row: t.row}, durableFiles, quickFiles})
	}
	return append(all, shortRow{"KiB of memory for each of 10,000 idle sessions", spot{group: memoryGroup, row: idleRow(10000)}, usualName, bareLocks})
}

// shortTable writes the README's table: a line for each measurement, a column for each server.
func (r *report) shortTable(w io.Writer) {
	fmt.Fprintf(w, "| | ftplockd, synced | ftplockd, not synced | vsftpd | proftpd | pure-ftpd | %s | %s | %s |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|\n", bareName, echoName, floorName)
	for _, row := range r.shortRows() {
		found := r.find(row.at.group, row.at.place, row.at.row)
		if len(found.Columns) <= row.at.column {
			continue // not measured at all
		}
		c := found.Columns[row.at.column]
		line := []string{row.text}
		for _, server := range []string{row.synced, row.unsynced, reference, "proftpd", "pure-ftpd", bareName, echoName, floorName} {
			line = append(line, found.shortCell(server, row.at.column, c))
		}
		fmt.Fprintf(w, "| %s |\n", strings.Join(line, " | "))
	}
}

// shortCell writes a median and, for all but the reference, its ratio to that.
func (r *rowResults) shortCell(server string, i int, c column) string {
	all := r.measured(server, i)
	if len(all) == 0 {
		return ""
	}
	text := c.Unit.format(median(all))
	if of := median(r.measured(reference, i)); c.Ratio && of > 0 && server != reference {
		text += fmt.Sprintf(" (%s)", ratioText(median(all)/of))
	}
	return text
}
