//go:build linux

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// measured is all that was measured of one server.
type measured struct {
	loads   map[int][]loaded // by number of connections, one for each round
	perIdle float64          // bytes of memory for each idle connection
}

func (m *measured) add(connections int, l loaded) {
	if m.loads == nil {
		m.loads = make(map[int][]loaded)
	}
	m.loads[connections] = append(m.loads[connections], l)
}

// median returns the median of one aspect over the rounds.
func (m *measured) median(connections int, aspect func(loaded) float64) float64 {
	var all []float64
	for _, l := range m.loads[connections] {
		all = append(all, aspect(l))
	}
	slices.Sort(all)
	if n := len(all); n%2 == 0 {
		return (all[n/2-1] + all[n/2]) / 2
	}
	return all[len(all)/2]
}

func rate(l loaded) float64 { return l.rate }
func p50(l loaded) float64  { return float64(l.p50) }
func p99(l loaded) float64  { return float64(l.p99) }

// report prints two tables: pairs per second with their ratio to the first server, and how long a pair takes.
func report(w io.Writer, o options, servers []server, results map[string]*measured) {
	if len(servers) == 0 {
		return
	}
	first := results[servers[0].name]
	fmt.Fprintf(w, "MKD+RMD pairs per second (ratio to %s); medians of %d rounds of %v\n\n", servers[0].name, o.rounds, o.time)
	header(w, o, " memory per idle connection |")
	for _, s := range servers {
		m := results[s.name]
		fmt.Fprintf(w, "| %s |", s.name)
		for _, n := range o.connections {
			r := m.median(n, rate)
			fmt.Fprintf(w, " %.0f (%.2f) |", r, r/first.median(n, rate))
		}
		if o.idle > 0 {
			fmt.Fprintf(w, " %.1f KiB |", m.perIdle/1024)
		} else {
			fmt.Fprint(w, " - |")
		}
		fmt.Fprintln(w)
	}
	fmt.Fprint(w, "\nTime of a pair: median / 99th percentile\n\n")
	header(w, o, "")
	for _, s := range servers {
		m := results[s.name]
		fmt.Fprintf(w, "| %s |", s.name)
		for _, n := range o.connections {
			fmt.Fprintf(w, " %s / %s |", short(m.median(n, p50)), short(m.median(n, p99)))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w)
}

func header(w io.Writer, o options, more string) {
	fmt.Fprint(w, "| server |")
	for _, n := range o.connections {
		fmt.Fprintf(w, " %d conn. |", n)
	}
	fmt.Fprintf(w, "%s\n|---|%s", more, strings.Repeat("---:|", len(o.connections)))
	if more != "" {
		fmt.Fprint(w, "---:|")
	}
	fmt.Fprintln(w)
}

// short is a duration with three digits or so.
func short(nanoseconds float64) string {
	d := time.Duration(nanoseconds)
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%d us", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%.1f ms", float64(d)/1e6)
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}
