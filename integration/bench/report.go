//go:build linux

package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// report is what one run found.
type report struct {
	machine string
	rounds  int
	rows    []*row
	notes   []string // what could not be measured, and why
}

// row is a line of the table.
type row struct {
	name        string
	unit        string
	mode        mode // of ftplockd
	connections int  // of a row of locks, for the plot
	file        bool // it is a transfer
	short       bool // it stands in README.md, too

	rounds map[string][]float64 // by server; NaN: it failed
}

func (r *row) add(server string, value float64) {
	if r.rounds == nil {
		r.rounds = make(map[string][]float64)
	}
	r.rounds[server] = append(r.rounds[server], value)
}

// median returns a server's figure; NaN if there is none.
func (r *row) median(server string) float64 { return median(r.rounds[server]) }

// ratio returns the median of the ratios of a server's figures to those of another one in the same rounds.
func (r *row) ratio(server, to string) float64 { return median(ratios(r.rounds[server], r.rounds[to])) }

// ratios divides what was found in the same rounds.
func ratios(of, to []float64) (all []float64) {
	for i := range min(len(of), len(to)) {
		all = append(all, of[i]/to[i])
	}
	return all
}

// median is the middle one of the values, or the mean of the two in the middle. NaNs do not count; of no values it is NaN.
func median(values []float64) float64 {
	sorted := slices.DeleteFunc(slices.Sorted(slices.Values(values)), math.IsNaN)
	n := len(sorted)
	if n == 0 {
		return math.NaN()
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// number writes a value with about three digits or all before the point; nothing for NaN.
func number(v float64) string {
	switch {
	case math.IsNaN(v):
		return ""
	case v < 10:
		return fmt.Sprintf("%.2f", v)
	case v < 100:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// table writes the rows. It has a column for each server that something is known of.
func table(rows []*row) string {
	servers := slices.DeleteFunc(append([]string{earlier}, others()...), func(server string) bool {
		return !slices.ContainsFunc(rows, func(r *row) bool { return len(r.rounds[server]) > 0 })
	})
	var b strings.Builder
	b.WriteString("| row | ftplockd | |")
	for _, server := range servers {
		fmt.Fprintf(&b, " / %s |", server)
	}
	fmt.Fprintf(&b, "\n|---|---:|---|%s\n", strings.Repeat("---:|", len(servers)))
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s | %s |", r.name, number(r.median(ours)), r.unit)
		for _, server := range servers {
			fmt.Fprintf(&b, " %s |", number(r.ratio(ours, server)))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// long is what docs/bench.md has: all rows, what could not be measured, and the targets.
func (r *report) long() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Medians of %d rounds. %s.\n\n", r.rounds, r.machine)
	b.WriteString(table(r.rows))
	if len(r.notes) > 0 {
		b.WriteString("\n### Not measured\n\n")
		for _, note := range r.notes {
			fmt.Fprintf(&b, "- %s\n", strings.ReplaceAll(note, "\n", "; "))
		}
	}
	b.WriteString("\n### Targets\n\n")
	for _, t := range targets(r.rows) {
		fmt.Fprintf(&b, "- %s\n", t)
	}
	return b.String()
}

// brief is what README.md has: some rows.
func (r *report) brief() string {
	rows := slices.DeleteFunc(slices.Clone(r.rows), func(r *row) bool { return !r.short })
	return fmt.Sprintf("%s\nMedians of %d rounds. The last columns have the ratio of ftplockd's figure to another server's. %s.\n",
		table(rows), r.rounds, r.machine)
}
