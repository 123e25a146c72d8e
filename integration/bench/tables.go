//go:build linux

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// print writes all tables, what could not be measured, and which targets are met, as Markdown.
func (r *report) print(w io.Writer) {
	fmt.Fprintf(w, "%s.\n\n", r.Machine)
	for _, g := range r.Groups {
		g.print(w)
	}
	if len(r.Notes) > 0 {
		fmt.Fprintf(w, "### Not measured\n\n")
		for _, n := range r.Notes {
			fmt.Fprintln(w, "-", n)
		}
		fmt.Fprintln(w)
	}
	r.printTargets(w)
}

// print writes one Markdown table for each title.
func (r *results) print(w io.Writer) {
	for _, title := range r.titles() {
		r.table(w, title)
	}
}

func (r *results) titles() (titles []string) {
	for _, row := range r.Rows {
		for _, c := range row.Columns {
			if !slices.Contains(titles, c.Title) {
				titles = append(titles, c.Title)
			}
		}
	}
	return titles
}

// table writes that of one title: a line for each server, a column for each value under that title.
func (r *results) table(w io.Writer, title string) {
	head, rule := []string{"server"}, []string{"---"}
	r.columns(title, func(_ *rowResults, _ int, c column) {
		head, rule = append(head, c.Heading), append(rule, "---:")
	})
	fmt.Fprintf(w, "### %s\n\n| %s |\n|%s|\n", title, strings.Join(head, " | "), strings.Join(rule, "|"))
	for _, server := range r.Servers {
		line, empty := []string{server}, true
		r.columns(title, func(row *rowResults, i int, c column) {
			text := row.cell(server, i, c)
			line, empty = append(line, text), empty && text == missing
		})
		if !empty {
			fmt.Fprintf(w, "| %s |\n", strings.Join(line, " | "))
		}
	}
	fmt.Fprintln(w)
}

func (r *results) columns(title string, yield func(row *rowResults, i int, c column)) {
	for _, row := range r.Rows {
		for i, c := range row.Columns {
			if c.Title == title {
				yield(row, i, c)
			}
		}
	}
}

// missing stands where nothing was measured.
const missing = "-"

// cell writes a median; in columns that have a ratio to the reference that, too, and how far the rounds lie apart.
func (r *rowResults) cell(server string, i int, c column) string {
	all := r.measured(server, i)
	if len(all) == 0 {
		return missing
	}
	text := c.Unit.format(median(all))
	if !c.Ratio {
		return text
	}
	if len(all) > 1 {
		text += fmt.Sprintf(" ±%.0f %%", 100*spread(all))
	}
	if of := median(r.measured(reference, i)); of > 0 {
		text += fmt.Sprintf(" (%s)", ratioText(median(all)/of))
	}
	return text
}

// ratioText writes a ratio with about three digits.
func ratioText(ratio float64) string {
	switch {
	case ratio >= 100:
		return fmt.Sprintf("%.0f", ratio)
	case ratio >= 10:
		return fmt.Sprintf("%.1f", ratio)
	}
	return fmt.Sprintf("%.2f", ratio)
}
