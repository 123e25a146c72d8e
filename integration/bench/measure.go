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

// measurement is one kind of work that is done on several servers.
type measurement struct {
	name   string
	rows   []*row   // one for each mode of ftplockd
	others []string // the servers that are measured beside ftplockd
	tls    bool
	once   bool // in the first round only, on servers that did nothing before
	run    func(context.Context, *server) (float64, error)
}

// participant is a server that a measurement is done on, and the rows that its figures go to.
type participant struct {
	entrant
	rows []*row
}

// participants returns ftplockd in each mode, the earlier one if there is one, and the others.
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

// round measures everything once. Servers are started when they are needed, and stopped at the end.
func (c *contest) round(ctx context.Context, round int, all []*measurement, r *report) (err error) {
	defer func() { err = errors.Join(err, c.stop()) }()
	for _, m := range all {
		if m.once && round > 0 {
			continue
		}
		fmt.Fprintln(os.Stderr, " ", m.name)
		all := m.participants(c)
		for i := range all {
			p := all[(i+round)%len(all)] // each round begins with another one
			value, err := c.measure(ctx, m, p.entrant)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil { // the others go on
				value = math.NaN()
				r.notes = append(r.notes, fmt.Sprintf("%s, round %d: %s: %v", p.rows[0].name, round+1, p.server, err))
			}
			for _, row := range p.rows {
				row.add(p.server, value)
			}
		}
	}
	return nil
}

// measure does a measurement on one server.
func (c *contest) measure(ctx context.Context, m *measurement, e entrant) (float64, error) {
	s, err := c.get(e)
	if err != nil {
		return 0, err
	}
	unix.Sync() // no server is to wait for what another one left to be written
	return m.run(ctx, s)
}
