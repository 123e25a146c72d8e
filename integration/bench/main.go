//go:build linux

// Command bench runs the same work on ftplockd and on other FTP servers in turn, on the same disks and in one run, and
// says as Markdown and as plots what it measured: locks taken and given back, one lock that all want, logins, files up
// and down (also in ASCII, under TLS, and small ones by client programs of their own), and the memory of idle sessions.
//
//	go run ./integration/bench [-quick] [-rows locks,contended,login,files,tls,memory] [-dir DIR]... [-json FILE]
//	                           [-table FILE] [-plots DIR] [-readme] ...
//
// The servers are ftplockd in its modes, vsftpd, proftpd, pure-ftpd, a bare ftpserverlib, a server that only echoes
// lines, and for small files one that does no more than it must. Each is set up for speed: no look-ups of names, no log, sendfile where it can. docs/bench.md has their settings,
// which are taken down from the servers that ran, and says what the rows and columns are.
//
// In each round the servers take turns, in another order each time, so that whatever else the machine does meets all of
// them. A table has medians over the rounds, how far the rounds lie apart, and the ratio to vsftpd. The processor time that the
// server needed for one pair or file is what a busy machine falsifies least. Tables go to standard output, progress to
// standard error. With -profile, ftplockd is watched with perf while it is measured.
//
// Everything that is written, the README's table included, is made of one report, which -json keeps and -from takes up again.
//
// Caveats: client and servers share the machine's processors. No server but ftplockd syncs anything, so only its lines
// with durable = false compare like with like. The peers need root and, unless they are installed, Debian's
// packages, which are unpacked into the user's cache directory and not installed; a peer that cannot be had is left
// out with a line that says why.
//
// Start reading at rows.go for what is measured, at server.go for who takes part, at report.go for what becomes of it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == programWord {
		os.Exit(program(os.Args[2:]))
	}
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures, or reads what was measured, and writes what is asked for.
func run(ctx context.Context, o options) error {
	if o.readme {
		if err := checkDocuments("."); err != nil { // rather now than after a quarter of an hour
			return err
		}
	}
	r, err := obtain(ctx, o)
	if err != nil {
		return err
	}
	return deliver(o, r)
}

// obtain returns the report, and saves a new one if that is asked for.
func obtain(ctx context.Context, o options) (*report, error) {
	if o.from != "" {
		return readReport(o.from)
	}
	r, err := bench(ctx, o)
	if err == nil && o.json != "" {
		err = r.save(o.json)
	}
	return r, err
}

// deliver writes the report in all the forms that are asked for.
func deliver(o options, r *report) error {
	r.print(os.Stdout)
	var errs []error
	if o.table != "" {
		var text strings.Builder
		r.print(&text)
		errs = append(errs, os.WriteFile(o.table, []byte(text.String()), 0o644))
	}
	if o.plots != "" {
		errs = append(errs, os.MkdirAll(o.plots, 0o755), r.plot(o.plots))
	}
	if o.readme {
		errs = append(errs, r.intoDocuments("."))
	}
	return errors.Join(errs...)
}

// bench measures everything that is selected.
func bench(ctx context.Context, o options) (r *report, err error) {
	places, err := makePlaces(o.dirs)
	defer func() { err = errors.Join(err, removePlaces(places)) }()
	if err != nil {
		return nil, err
	}
	if o.profile != "" {
		if err := os.MkdirAll(o.profile, 0o755); err != nil {
			return nil, err
		}
	}
	// Programs are not made in the places: what is in memory may not be run on some machines.
	programs, err := makePlaces([]string{os.TempDir()})
	defer func() { err = errors.Join(err, removePlaces(programs)) }()
	if err != nil {
		return nil, err
	}
	all, notes, err := newContest(ctx, programs[0].dir, o.only)
	if err != nil {
		return nil, err
	}
	r = &report{Machine: thisMachine(), Command: o.command, Notes: notes}
	for _, p := range places {
		r.Places = append(r.Places, p.fs)
	}
	start := time.Now()
	for _, g := range o.selected(places) {
		results, err := all.measureGroup(ctx, o, g, r)
		if err != nil {
			return nil, err
		}
		r.Groups = append(r.Groups, results)
	}
	fmt.Fprintf(os.Stderr, "all in %v\n", time.Since(start).Round(time.Second))
	return r, nil
}

// measureGroup measures one group in all its rounds.
func (c *contest) measureGroup(ctx context.Context, o options, g group, into *report) (*results, error) {
	start, r, taking := time.Now(), newResults(g), keep(c.servers(g), o.only)
	r.Servers = names(taking)
	for round := range g.rounds(o) {
		for _, s := range rotate(taking, round) {
			fmt.Fprintf(os.Stderr, "%s on %s, round %d of %d: %s\n", g.title, g.place.fs, round+1, g.rounds(o), s.name)
			if err := measure(ctx, o, g, s, round, r, into); err != nil {
				return nil, fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	into.Notes = append(into.Notes, r.failed()...)
	r.Seconds = time.Since(start).Round(time.Second).Seconds()
	fmt.Fprintf(os.Stderr, "%s on %s took %v\n", g.title, g.place.fs, time.Since(start).Round(time.Second))
	return r, nil
}

// measure starts one server, does all that the group has for it, and ends it. What a server fails in is left out of the
// tables and noted; that it does not end is an error.
func measure(ctx context.Context, o options, g group, s server, round int, into *results, r *report) (err error) {
	p, err := s.start(ctx, g.place.dir, g.tls)
	if err != nil {
		into.fail(s.name, "start", err)
		return ctx.Err()
	}
	defer func() {
		err = errors.Join(err, p.Stop())
		err = errors.Join(err, settle(g.place.dir))
	}()
	if round == 0 {
		r.describe(ctx, s.name, p, g.place.dir)
	}
	for i, row := range g.rows {
		if !s.can(row.needs) {
			continue
		}
		profile := ""
		if o.profile != "" && round == 0 && s.profiled {
			profile = filepath.Join(o.profile, fileName(g.title+" "+g.place.fs+" "+row.name+" "+s.name))
		}
		values, rerr := watched(p, profile, func() ([]float64, error) { return row.run(ctx, p) })
		if err := ctx.Err(); err != nil {
			return err
		}
		into.add(s.name, i, values, rerr)
	}
	return nil
}

// settle writes to disk what was left to be written: the next server is not to pay for this one.
func settle(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return unix.Syncfs(int(d.Fd()))
}

// rotate returns the list begun at another place.
func rotate[T any](list []T, by int) []T {
	if len(list) == 0 {
		return nil
	}
	by %= len(list)
	return slices.Concat(list[by:], list[:by])
}

// keep returns the servers that are wanted.
func keep(all []server, words string) []server {
	return slices.DeleteFunc(slices.Clone(all), func(s server) bool { return !wanted(s.name, words) })
}

// wanted is whether a name contains one of the words, separated by commas; any does if there is none.
func wanted(name, words string) bool {
	for w := range strings.SplitSeq(words, ",") {
		if strings.Contains(name, w) {
			return true
		}
	}
	return false
}

func names(all []server) []string {
	var list []string
	for _, s := range all {
		list = append(list, s.name)
	}
	return list
}

// fileName makes a file's name of a text.
func fileName(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '_'
	}, strings.ToLower(text)) + ".txt"
}
