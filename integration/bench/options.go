//go:build linux

package main

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// options are the command line.
type options struct {
	command     string // as it was given
	dirs        []string
	groups      []string
	only        string
	rounds      int
	time        time.Duration
	connections []int
	contenders  int
	idle        []int
	waiting     int
	large       int64 // MiB
	quick       bool

	profile, from, json, table, plots string
	readme                            bool
}

// defaultDirs are where locks are measured if nobody says otherwise: a directory that is on a disk on most systems, where /tmp
// may not be, and one in memory.
func defaultDirs() []string { return []string{"/var/tmp", "/dev/shm"} }

const usage = `usage: go run ./integration/bench [flags]

Measures ftplockd and other FTP servers side by side. With the defaults it takes about a quarter of an hour on
two processors, -readme included; -quick takes four minutes. docs/bench.md says what is measured.

`

// parse reads the command line.
func parse(args []string) (options, error) {
	o := options{command: strings.TrimSpace("go run ./integration/bench " + strings.Join(args, " "))}
	var groups, connections, idle string
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprint(flags.Output(), usage); flags.PrintDefaults() }
	flags.Func("dir", "make the servers' trees and states in `DIR`. May be given again: locks, and small files of programs, are measured in each, the rest in the first (default "+
		strings.Join(defaultDirs(), " and ")+")", func(dir string) error { o.dirs = append(o.dirs, dir); return nil })
	flags.StringVar(&groups, "rows", strings.Join(groupNames, ","), "what to measure")
	flags.StringVar(&o.only, "only", "", "measure only servers whose names contain one of these, separated by commas")
	flags.IntVar(&o.rounds, "rounds", 5, "how often each server is measured with locks and logins; with one lock for all and files half as often, rounded up; medians are reported")
	flags.DurationVar(&o.time, "time", 400*time.Millisecond, "how long each measurement takes; one lock for all takes five times as long")
	flags.StringVar(&connections, "connections", "1,8,64,256", "numbers of clients that take locks at once")
	flags.IntVar(&o.contenders, "contenders", 128, "how many clients want the one lock")
	flags.StringVar(&idle, "idle", "1000,10000", "with how many idle sessions memory is measured")
	flags.IntVar(&o.waiting, "waiting", 1000, "how many sessions wait for a lock beside the most idle ones, where the server can")
	flags.Int64Var(&o.large, "large", 512, "size of the large file in `MiB`; 0: none")
	flags.StringVar(&o.profile, "profile", "", "write perf profiles of ftplockd to `DIR`, one for each measurement of the first round")
	flags.BoolVar(&o.quick, "quick", false, "two short rounds with a smaller large file and fewer sessions, to see that all works")
	flags.StringVar(&o.json, "json", "", "write all that was measured to `FILE`")
	flags.StringVar(&o.from, "from", "", "measure nothing; take `FILE`, which -json wrote")
	flags.StringVar(&o.table, "table", "", "write to `FILE` what is written to standard output, too")
	flags.StringVar(&o.plots, "plots", "", "write plots to `DIR`")
	flags.BoolVar(&o.readme, "readme", false, "rewrite README.md and docs/bench.md between their marks, and docs/bench-*.png, from this run")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("%q: no arguments are taken", flags.Args())
	}
	var err, ierr error
	o.connections, err = numbers("-connections", connections)
	o.idle, ierr = numbers("-idle", idle)
	if err := errors.Join(err, ierr, o.choose(groups)); err != nil {
		return o, err
	}
	return o.hurried(), o.check()
}

// choose takes the words of -rows.
func (o *options) choose(groups string) error {
	for name := range strings.SplitSeq(groups, ",") {
		if !slices.Contains(groupNames, name) {
			return fmt.Errorf("-rows knows %s, not %q", strings.Join(groupNames, ", "), name)
		}
		o.groups = append(o.groups, name)
	}
	if len(o.dirs) == 0 {
		o.dirs = defaultDirs()
	}
	return nil
}

// hurried returns the options with what -quick makes of them.
func (o options) hurried() options {
	if !o.quick {
		return o
	}
	o.rounds, o.time, o.large, o.waiting = 2, 150*time.Millisecond, min(o.large, 64), min(o.waiting, 100)
	o.idle = []int{100}
	return o
}

func (o options) check() error {
	switch {
	case o.rounds < 1 || o.contenders < 1 || o.time <= 0:
		return errors.New("-rounds, -contenders and -time want more than 0")
	case o.large < 0 || o.waiting < 0:
		return errors.New("-large and -waiting want no less than 0")
	case o.quick && o.readme:
		return errors.New("what -quick finds is not for -readme")
	}
	return nil
}

// numbers reads numbers above 0, separated by commas.
func numbers(flag, text string) (list []int, err error) {
	for text := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%s wants numbers above 0, separated by commas, not %q", flag, text)
		}
		list = append(list, n)
	}
	return list, nil
}
