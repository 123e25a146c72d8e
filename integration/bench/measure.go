//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// figure is the result of one measurement.
type figure struct {
	value float64 // in the unit of the row
	cpu   float64 // CPU time of the server per operation, in microseconds; NaN: not measured
}

// measurement is one kind of work that is done on several servers.
type measurement struct {
	name   string
	rows   []*row   // one for each mode of ftplockd
	others []string // the servers that are measured beside ftplockd
	tls    bool
	once   bool // in the first round only, on servers that did nothing before
	run    work
}

// work does a measurement on a server.
type work func(context.Context, *server) (figure, error)

// participant is a server to measure, and the rows of its figures.
type participant struct {
	entrant
	rows []*row
}

// participants returns ftplockd in each mode, the earlier ftplockd if there is one, and the other servers.
func (m *measurement) participants(c *contest) (all []participant) {
	add := func(name string, in mode, rows ...*row) {
		all = append(all, participant{entrant{server: name, mode: in, tls: m.tls, fresh: m.once}, rows})
	}
	for _, r := range m.rows {
		add(ours, r.mode, r)
		if c.before != "" {
			add(earlier, r.mode, r)
		}
	}
	for _, name := range m.others {
		if c.has(name) {
			add(name, mode{}, m.rows...)
		}
	}
	return all
}

// measureAll does all rounds.
func measureAll(ctx context.Context, o options) (r *report, err error) {
	c, err := newContest(ctx, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(c.dir)) }()
	all := measurements(o)
	r = &report{machine: machineOf(c.dir), rounds: o.rounds, notes: c.missing}
	for _, m := range all {
		r.rows = append(r.rows, m.rows...)
	}
	for round := range o.rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, o.rounds)
		if err := c.round(ctx, round, all, r); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// round measures everything once. It starts a server when a measurement needs it, and stops all servers at the end.
func (c *contest) round(ctx context.Context, round int, all []*measurement, r *report) (err error) {
	defer func() { err = errors.Join(err, c.stop()) }()
	for _, m := range all {
		if m.once && round > 0 {
			continue
		}
		fmt.Fprintln(os.Stderr, " ", m.name)
		all := m.participants(c)
		for i := range all {
			p := all[(i+round)%len(all)] // each round begins with another server
			found, err := c.measure(ctx, m, p.entrant)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil { // the other measurements go on
				found = figure{math.NaN(), math.NaN()}
				r.notes = append(r.notes, fmt.Sprintf("%s, round %d: %s: %v", p.rows[0].name, round+1, p.server, err))
			}
			for _, row := range p.rows {
				row.add(p.server, found)
			}
		}
	}
	return nil
}

// measure does a measurement on one server.
func (c *contest) measure(ctx context.Context, m *measurement, e entrant) (figure, error) {
	s, err := c.get(e)
	if err != nil {
		return figure{}, err
	}
	unix.Sync() // so that no server waits for the writes of another one
	return m.run(ctx, s)
}
