//go:build linux

package main

import (
	"fmt"
	"math"
	"strings"
)

// target is what is wanted of the rows whose names begin in a way.
type target struct {
	row    string
	to     string // of the ratio to this server; "": of the figure itself
	limit  float64
	atMost bool // the limit is the most; else it is the least
}

// wanted is all targets. Those of transfers are the same for each row.
func wanted(rows []*row) []target {
	many := pairsName(64)
	all := []target{
		{row: inMode(many, mode{durable: true}), to: vsftpd, limit: 5},
		{row: inMode(many, mode{durable: true}), to: proftpd, limit: 5},
		{row: inMode(many, mode{durable: true}), to: pureftpd, limit: 5},
		{row: inMode(many, fastest()), to: vsftpd, limit: 5},
		{row: inMode(many, fastest()), to: bare, limit: 0.8},
		{row: inMode(many, mode{directories: true}), to: vsftpd, limit: 1},
		{row: handOverName, limit: 1, atMost: true},
		{row: idleName, limit: 28, atMost: true},
	}
	for _, r := range rows {
		if r.file {
			all = append(all, target{row: r.name, to: vsftpd, limit: 0.7})
		}
	}
	return all
}

// targets says of each target that was measured whether it is met.
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

// verdict says whether a row meets the target.
func (t target) verdict(r *row) string {
	value, unit := r.median(ours), r.unit
	if t.to != "" {
		value, unit = r.ratio(ours, t.to), "times "+t.to
	}
	met, limit := value >= t.limit, "at least"
	if t.atMost {
		met, limit = value <= t.limit, "at most"
	}
	switch {
	case math.IsNaN(value):
		return fmt.Sprintf("not measured: %s, %s", r.name, unit)
	case met:
		return fmt.Sprintf("met: %s: %s %s (%s %g)", r.name, number(value), unit, limit, t.limit)
	}
	return fmt.Sprintf("missed: %s: %s %s (%s %g)", r.name, number(value), unit, limit, t.limit)
}
