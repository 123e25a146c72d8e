//go:build linux

package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// report is the result of one run.
type report struct {
	machine string
	rounds  int
	rows    []*row
	notes   []string // failed measurements, with the reasons
}

// row is a line of the table.
type row struct {
	name string
	unit string
	mode mode // of ftplockd
	file bool // a large transfer

	rounds map[string][]figure // by server
}

func (r *row) add(server string, f figure) {
	if r.rounds == nil {
		r.rounds = make(map[string][]figure)
	}
	r.rounds[server] = append(r.rounds[server], f)
}

// median returns the figure of a server, or NaN if there is none.
func (r *row) median(server string) float64 { return median(values(r.rounds[server])) }

// cpu returns the CPU time of a server per operation in microseconds, or NaN if there is none.
func (r *row) cpu(server string) float64 {
	var all []float64
	for _, f := range r.rounds[server] {
		all = append(all, f.cpu)
	}
	return median(all)
}

// ratio returns the median of the ratios of two servers' figures in the same rounds.
func (r *row) ratio(server, to string) float64 {
	var ratios []float64
	a, b := values(r.rounds[server]), values(r.rounds[to])
	for i := range min(len(a), len(b)) {
		ratios = append(ratios, a[i]/b[i])
	}
	return median(ratios)
}

func values(all []figure) (list []float64) {
	for _, f := range all {
		list = append(list, f.value)
	}
	return list
}

// median returns the middle value, or the mean of the two in the middle. It ignores NaNs and returns NaN for no values.
func median(values []float64) float64 {
	sorted := slices.DeleteFunc(slices.Sorted(slices.Values(values)), math.IsNaN)
	n := len(sorted)
	if n == 0 {
		return math.NaN()
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// number formats a value with about three digits, or nothing for NaN.
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

// withCPU formats a value, and the CPU time per operation in brackets if there is one.
func withCPU(value string, cpu float64) string {
	if value == "" || math.IsNaN(cpu) {
		return value
	}
	return fmt.Sprintf("%s (%s)", value, number(cpu))
}

// table formats the rows, with a column for each measured server.
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
		fmt.Fprintf(&b, "| %s | %s | %s |", r.name, withCPU(number(r.median(ours)), r.cpu(ours)), r.unit)
		for _, server := range servers {
			fmt.Fprintf(&b, " %s |", withCPU(number(r.ratio(ours, server)), r.cpu(server)))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// long returns the text of docs/bench.md: all rows and the failed measurements.
func (r *report) long() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Medians of %d rounds. %s. In brackets: CPU time of the server per operation, in µs.\n\n", r.rounds, r.machine)
	b.WriteString(table(r.rows))
	if len(r.notes) > 0 {
		b.WriteString("\n### Not measured\n\n")
		for _, note := range r.notes {
			fmt.Fprintf(&b, "- %s\n", strings.ReplaceAll(note, "\n", "; "))
		}
	}
	return b.String()
}

// goals returns the list of goals, with those that are missed.
func (r *report) goals() string {
	var b strings.Builder
	b.WriteString("\n### Goals\n\n")
	for _, t := range targets(r.rows) {
		fmt.Fprintf(&b, "- %s\n", t)
	}
	return b.String()
}
