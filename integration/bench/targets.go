//go:build linux

package main

import (
	"fmt"
	"math"
	"strings"
)

// target is a goal for the rows whose names begin with a prefix.
type target struct {
	row    string
	to     string // the goal is for the ratio to this server; "": for the figure
	limit  float64
	atMost bool // the limit is a maximum, not a minimum
}

// wanted returns all goals.
func wanted(rows []*row) []target {
	all := []target{
		{row: noopName, to: bare, limit: 0.85},
		{row: inMode(pairsName(1), byDefault()), to: vsftpd, limit: 0.3},
		{row: inMode(pairsName(8), byDefault()), to: vsftpd, limit: 0.27},
		{row: inMode(callsName, fastest()), limit: 10, atMost: true},
		{row: inMode(callsName, byDefault()), limit: 18, atMost: true}, // 16 and the syncs
		{row: inMode(deepCallsName, fastest()), limit: 10, atMost: true},
		{row: handOverName, limit: 0.5, atMost: true},
		{row: counted("1 KiB up, ALLO", 1), to: vsftpd, limit: 0.9},
		{row: counted("1 KiB up", 16), to: vsftpd, limit: 0.85},
		{row: idleName, limit: 28, atMost: true},
	}
	for _, n := range []int{8, 64, 256} {
		all = append(all, target{row: inMode(pairsName(n), fastest()), to: bare, limit: 0.75})
	}
	for _, n := range []int{64, 256} {
		all = append(all, target{row: inMode(pairsName(n), byDefault()), to: vsftpd, limit: 0.45},
			target{row: inMode(pairsName(n), mode{directories: true}), to: vsftpd, limit: 0.9})
	}
	for _, r := range rows {
		if r.file {
			all = append(all, target{row: r.name, to: vsftpd, limit: 0.8})
		}
	}
	return all
}

// targets compares each goal with the measured rows.
func targets(rows []*row) (lines []string) {
	for _, t := range wanted(rows) {
		for _, r := range rows {
			if strings.HasPrefix(r.name, t.row) {
				lines = append(lines, t.verdict(r))
			}
		}
	}
	return lines
}

// verdict reports whether a row reaches the goal.
func (t target) verdict(r *row) string {
	value, unit := r.median(ours), r.unit
	if t.to != "" {
		value, unit = r.ratio(ours, t.to), "times "+t.to
	}
	reached, limit := value >= t.limit, "at least"
	if t.atMost {
		reached, limit = value <= t.limit, "at most"
	}
	switch {
	case math.IsNaN(value):
		return fmt.Sprintf("not measured: %s, %s", r.name, unit)
	case reached:
		return fmt.Sprintf("reached: %s: %s %s (%s %g)", r.name, number(value), unit, limit, t.limit)
	}
	return fmt.Sprintf("missed: %s: %s %s (%s %g)", r.name, number(value), unit, limit, t.limit)
}
