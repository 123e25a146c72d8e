//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// reference is the server that ratios are to.
const reference = "vsftpd"

// report is all that one run found: what -json writes and what all that is printed and drawn is made of.
type report struct {
	Machine machine    `json:"machine"`
	Command string     `json:"command"`
	Places  []string   `json:"places"` // file systems, in the order of -dir
	Servers []settings `json:"servers"`
	Groups  []*results `json:"groups"`
	Notes   []string   `json:"notes"` // what could not be measured, and why
}

// results are those of one group.
type results struct {
	Name    string        `json:"name"` // of groupNames
	Title   string        `json:"title"`
	Place   string        `json:"place"`   // the file system
	Servers []string      `json:"servers"` // in the order of the tables
	Rows    []*rowResults `json:"rows"`
	Seconds float64       `json:"seconds"` // that all of it took

	errs map[string]error // the first one, by server and row
}

// rowResults are those of one row.
type rowResults struct {
	Name    string   `json:"name"`
	Columns []column `json:"columns"`
	// Rounds has for each server and round a value for each column.
	Rounds map[string][][]float64 `json:"rounds"`
}

// column is where a value stands in the tables: columns of one title make one table.
type column struct {
	Title   string `json:"title"`
	Heading string `json:"heading"`
	Unit    unit   `json:"unit"`
	Ratio   bool   `json:"ratio"` // to the reference
}

func newResults(g group) *results {
	r := &results{Name: g.name, Title: g.title, Place: g.place.fs, errs: make(map[string]error)}
	for _, row := range g.rows {
		r.Rows = append(r.Rows, &rowResults{Name: row.name, Columns: row.columns, Rounds: make(map[string][][]float64)})
	}
	return r
}

// add takes note of one measurement of the i-th row.
func (r *results) add(server string, i int, values []float64, err error) {
	if err != nil {
		r.fail(server, r.Rows[i].Name, err)
		return
	}
	r.Rows[i].Rounds[server] = append(r.Rows[i].Rounds[server], values)
}

// fail takes note of what could not be done.
func (r *results) fail(server, what string, err error) {
	if what = server + ", " + what; r.errs[what] == nil {
		r.errs[what] = err
	}
}

// failed says what could not be measured.
func (r *results) failed() (notes []string) {
	for what, err := range r.errs {
		notes = append(notes, fmt.Sprintf("%s on %s: %s: %s", r.Title, r.Place, what, strings.ReplaceAll(err.Error(), "\n", "; ")))
	}
	slices.Sort(notes)
	return notes
}

// measured returns all rounds of a server's i-th value.
func (r *rowResults) measured(server string, i int) (all []float64) {
	for _, values := range r.Rounds[server] {
		if i < len(values) {
			all = append(all, values[i])
		}
	}
	return all
}

// find returns a row; nil if it was not measured, which has no values. An empty place is any.
func (r *report) find(group, place, row string) *rowResults {
	for _, g := range r.Groups {
		if g.Name != group || place != "" && g.Place != place {
			continue
		}
		for _, found := range g.Rows {
			if found.Name == row {
				return found
			}
		}
	}
	return &rowResults{}
}

// spot is where a value is found.
type spot struct {
	group, place, row string // an empty place is any
	column            int
}

// median returns that of a server's values; false if there are none.
func (r *report) median(at spot, server string) (float64, bool) {
	all := r.find(at.group, at.place, at.row).measured(server, at.column)
	return median(all), len(all) > 0
}

// disk names the first file system that is not in memory; "none" if there is none.
func (r *report) disk() string {
	for _, p := range r.Places {
		if !strings.HasPrefix(p, inMemory) {
			return p
		}
	}
	return "none"
}

func (r *report) save(file string) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

func readReport(file string) (*report, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := new(report)
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return r, nil
}
