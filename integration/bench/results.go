//go:build linux

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// reference is the server that ratios are to.
const reference = "vsftpd"

// results are those of one group: for each server and each row a list of values for each round.
type results struct {
	group  group
	order  []string // of the servers
	values map[string]map[string][][]float64
	errs   map[string]error // the first one, by server and row
}

func newResults(g group) *results {
	return &results{group: g, values: make(map[string]map[string][][]float64), errs: make(map[string]error)}
}

// add takes note of one measurement.
func (r *results) add(server string, row row, values []float64, err error) {
	if err != nil {
		r.fail(server, row.name, err)
		return
	}
	if r.values[server] == nil {
		r.values[server] = make(map[string][][]float64)
	}
	r.values[server][row.name] = append(r.values[server][row.name], values)
}

// fail takes note of what could not be done.
func (r *results) fail(server, what string, err error) {
	if what = server + ", " + what; r.errs[what] == nil {
		r.errs[what] = err
	}
}

// median returns that of a row's i-th value; false if there is none.
func (r *results) median(server string, row row, i int) (float64, bool) {
	var all []float64
	for _, values := range r.values[server][row.name] {
		all = append(all, values[i])
	}
	return median(all), len(all) > 0
}

// failed says what could not be measured.
func (r *results) failed() (notes []string) {
	for what, err := range r.errs {
		notes = append(notes, fmt.Sprintf("%s: %s: %s", r.group.name, what, strings.ReplaceAll(err.Error(), "\n", "; ")))
	}
	slices.Sort(notes)
	return notes
}

// print writes one Markdown table for each title.
func (r *results) print(w io.Writer) {
	for _, title := range r.titles() {
		r.table(w, title)
	}
}

func (r *results) titles() (titles []string) {
	for _, row := range r.group.rows {
		for _, c := range row.columns {
			if !slices.Contains(titles, c.title) {
				titles = append(titles, c.title)
			}
		}
	}
	return titles
}

// table writes that of one title: a line for each server, a column for each value under that title.
func (r *results) table(w io.Writer, title string) {
	head, rule := []string{"server"}, []string{"---"}
	r.columns(title, func(_ row, _ int, c column) {
		head, rule = append(head, c.heading), append(rule, "---:")
	})
	fmt.Fprintf(w, "### %s\n\n| %s |\n|%s|\n", title, strings.Join(head, " | "), strings.Join(rule, "|"))
	for _, server := range r.order {
		line, empty := []string{server}, true
		r.columns(title, func(row row, i int, c column) {
			text := r.cell(server, row, i, c)
			line, empty = append(line, text), empty && text == "-"
		})
		if !empty {
			fmt.Fprintf(w, "| %s |\n", strings.Join(line, " | "))
		}
	}
	fmt.Fprintln(w)
}

func (r *results) columns(title string, yield func(row row, i int, c column)) {
	for _, row := range r.group.rows {
		for i, c := range row.columns {
			if c.title == title {
				yield(row, i, c)
			}
		}
	}
}

func (r *results) cell(server string, row row, i int, c column) string {
	v, ok := r.median(server, row, i)
	if !ok {
		return "-"
	}
	text := c.format(v)
	if of, ok := r.median(reference, row, i); ok && of > 0 && c.ratio {
		text += fmt.Sprintf(" (%.2f)", v/of)
	}
	return text
}
