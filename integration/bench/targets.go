//go:build linux

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// others are the FTP servers that are not ours.
func others() []string { return []string{"vsftpd", "proftpd", "pure-ftpd", bareName} }

// target is a figure that is to be reached, and what was.
type target struct {
	text     string
	value    float64
	goal     float64
	atMost   bool // the value is to be no more than the goal; else no less
	unit     string
	measured bool
}

func (t target) met() bool {
	return t.measured && (t.atMost && t.value <= t.goal || !t.atMost && t.value >= t.goal)
}

func (t target) String() string {
	if !t.measured {
		return "not measured: " + t.text
	}
	verdict, limit := "missed", "at least"
	if t.met() {
		verdict = "met"
	}
	if t.atMost {
		limit = "at most"
	}
	return fmt.Sprintf("%s: %s%s (%s %g%s): %s", verdict, ratioText(t.value), t.unit, limit, t.goal, t.unit, t.text)
}

// printTargets says of each whether it is met.
func (r *report) printTargets(w io.Writer) {
	met, all := 0, r.targets()
	fmt.Fprintf(w, "### Targets\n\n")
	for _, t := range all {
		if t.met() {
			met++
		}
		fmt.Fprintln(w, "-", t)
	}
	fmt.Fprintf(w, "\n%d of %d are met.\n", met, len(all))
}

// targets returns all.
func (r *report) targets() []target {
	return slices.Concat(r.lockTargets(), r.otherTargets(), r.transferTargets())
}

func (r *report) lockTargets() (all []target) {
	disk := r.disk()
	pairs := func(place string, n int) spot { return spot{group: locksGroup, place: place, row: pairsRow(n)} }
	for _, n := range []int{8, 64, 256} {
		all = append(all, r.ratio(bareLocks, []string{reference}, pairs(inMemory, n), 1.2))
	}
	for _, place := range []string{inMemory, disk} {
		for _, n := range []int{1, 64, 256} {
			all = append(all, r.ratio(bareLocks, []string{echoName}, pairs(place, n), 0.9))
		}
	}
	all = append(all,
		r.ratio(durableLocks, others(), pairs(disk, 64), 5),
		r.ratio(durableLocks, []string{echoName}, pairs(disk, 64), 0.5))
	for _, place := range []string{disk, inMemory} {
		all = append(all, r.ratio(realDirectories, others(), pairs(place, 64), 1))
	}
	return all
}

func (r *report) otherTargets() (all []target) {
	for _, m := range lockModes() {
		all = append(all, r.everybodysTurn(m.name))
	}
	many := spot{group: memoryGroup, row: idleRow(10000)}
	for _, name := range []string{bareLocks, usualName} {
		all = append(all, r.limit(name, many, 0, 1, 24, " KiB", "memory of each of 10000 idle sessions"))
	}
	all = append(all, r.limit(bareLocks, many, 1, 1e3, 100, " us", "MKD of one more client beside 10000 idle sessions, median"))
	held := spot{group: memoryGroup, row: heldRow(10000, 1000)}
	for _, name := range []string{bareLocks, usualName} {
		all = append(all,
			r.limit(name, many, 2, 1e6, 5, " ms", "MKD of one more client beside 10000 idle sessions, 99th percentile"),
			r.limit(name, held, 2, 1e6, 5, " ms", "MKD of one more client beside 10000 idle and 1000 waiting sessions, 99th percentile"))
	}
	return append(all, r.ratio(usualName, []string{reference}, spot{group: loginGroup, row: loginsRow}, 5))
}

// transferTargets are one for each row of files, one more for each plain row of small ones, and how many rows are level with the best.
func (r *report) transferTargets() (all []target) {
	level, rows := 0.0, 0
	for _, at := range r.transfers() {
		all = append(all, r.ratio(quickFiles, []string{reference}, at, 1))
		if best := r.ratio(quickFiles, others(), at, 1); best.measured {
			rows++
			if best.met() {
				level++
			}
		}
	}
	for _, at := range r.transfers() {
		if at.group == filesGroup && strings.HasPrefix(at.row, smallFile) {
			all = append(all, r.ratio(quickFiles, []string{"proftpd"}, at, 2))
		}
	}
	return append(all, target{
		text:  fmt.Sprintf("rows of files, of %d, in which %s is level with the best other server", rows, quickFiles),
		value: level, goal: float64(rows/2 + 1), measured: rows > 0,
	})
}

// transfers returns where the rates of all file rows are.
func (r *report) transfers() (all []spot) {
	for _, g := range r.Groups {
		if g.Name != filesGroup && g.Name != tlsGroup {
			continue
		}
		for _, row := range g.Rows {
			all = append(all, spot{group: g.Name, place: g.Place, row: row.Name})
		}
	}
	return all
}

// ratio is a target for a rate of ours as a multiple of the best of some others.
func (r *report) ratio(ours string, of []string, at spot, goal float64) target {
	best, bestName := 0.0, ""
	for _, other := range of {
		if v, ok := r.median(at, other); ok && v > best {
			best, bestName = v, other
		}
	}
	place := ""
	if at.place != "" && (at.group == locksGroup || at.place != r.disk()) {
		place = " on " + at.place
	}
	name := bestName
	if name == "" {
		name = of[0]
	}
	t := target{text: fmt.Sprintf("%s, %s%s: %s / %s", at.group, at.row, place, ours, name), goal: goal}
	own, ok := r.median(at, ours)
	if ok && best > 0 {
		t.value, t.measured = own/best, true
	}
	return t
}

// limit is a target for a value of ours that is to be small, in units of so much.
func (r *report) limit(ours string, at spot, column int, unit, goal float64, unitName, text string) target {
	at.column = column
	v, ok := r.median(at, ours)
	return target{text: text + ": " + ours, value: v / unit, goal: goal, atMost: true, unit: unitName, measured: ok}
}

// everybodysTurn is the target that no client starves, in any round.
func (r *report) everybodysTurn(ours string) target {
	row := r.find(contendedGroup, "", tryingRow)
	t := target{text: "clients that want one lock: the fewest turns that one of them had in any round: " + ours, goal: 1}
	if fewest := row.measured(ours, fewestTurns); len(fewest) > 0 {
		t.value, t.measured = slices.Min(fewest), true
	}
	return t
}
