//go:build linux

// Command bench runs the same work on ftplockd and on other FTP servers in turn, on one disk and in one run, and
// prints what it measured as Markdown: locks taken and given back, one lock that all want, logins, files up and down
// (also in ASCII and under TLS), and the memory of idle sessions.
//
//	go run ./integration/bench [-dir DIR] [-rows locks,contended,login,files,tls,memory] [-rounds N] [-time D] [-quick]
//
// The servers are ftplockd in its modes, vsftpd, proftpd, pure-ftpd, a bare ftpserverlib, and a server that only echoes
// lines. Each is set up for speed: no look-ups of names, no log, sendfile where it can.
//
// In each round the servers take turns, in another order each time, so that whatever else the machine does meets all of
// them. A table has medians over the rounds, with their ratio to vsftpd in parentheses. The processor time that the server
// needed for one pair or file is what a busy machine falsifies least. Tables go to
// standard output, progress to standard error. With -profile, ftplockd is watched with perf while it is measured.
//
// Caveats: client and servers share the machine's processors. No server but ftplockd syncs anything, so only its lines
// with durable = false compare like with like. The peers need root and, unless they are installed, Debian's
// packages, which are unpacked into the user's cache directory and not installed; a peer that cannot be had is left
// out with a line that says why.
//
// Start reading at rows.go for what is measured, at server.go for who takes part.
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
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// options are the command line.
type options struct {
	dir         string
	groups      []string
	only        string
	rounds      int
	time        time.Duration
	connections []int
	contenders  int
	idle        int
	large       int64
	profile     string
}

func main() {
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
	if err := bench(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// parse reads the command line.
func parse(args []string) (options, error) {
	var o options
	var groups, connections string
	var quick bool
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.StringVar(&o.dir, "dir", "", "make the servers' trees and states in `DIR`, on the disk to be measured (default: the temporary directory)")
	flags.StringVar(&groups, "rows", strings.Join(groupNames, ","), "what to measure")
	flags.StringVar(&o.only, "only", "", "measure only servers whose names contain one of these, separated by commas")
	flags.IntVar(&o.rounds, "rounds", 5, "how often each server is measured; medians are reported")
	flags.DurationVar(&o.time, "time", time.Second, "how long each measurement takes")
	flags.StringVar(&connections, "connections", "1,8,64,256", "numbers of clients that take locks at once")
	flags.IntVar(&o.contenders, "contenders", 128, "how many clients want the one lock")
	flags.IntVar(&o.idle, "idle", 1000, "with how many idle sessions memory is measured; 0: not at all")
	flags.Int64Var(&o.large, "large", 512, "size of the large file in `MiB`; 0: none")
	flags.StringVar(&o.profile, "profile", "", "write perf profiles of ftplockd to `DIR`, one for each measurement of the first round")
	flags.BoolVar(&quick, "quick", false, "two short rounds with a smaller large file, to see that all works")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("%q: no arguments are taken", flags.Args())
	}
	if quick {
		o.rounds, o.time, o.large, o.idle = 2, 200*time.Millisecond, min(o.large, 64), min(o.idle, 100)
	}
	if o.rounds < 1 || o.contenders < 1 || o.time <= 0 {
		return o, errors.New("-rounds, -contenders and -time want more than 0")
	}
	for name := range strings.SplitSeq(groups, ",") {
		if !slices.Contains(groupNames, name) {
			return o, fmt.Errorf("-rows knows %s, not %q", strings.Join(groupNames, ", "), name)
		}
		o.groups = append(o.groups, name)
	}
	for text := range strings.SplitSeq(connections, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return o, fmt.Errorf("-connections wants numbers: %q", connections)
		}
		o.connections = append(o.connections, n)
	}
	return o, nil
}

// bench runs all.
func bench(ctx context.Context, o options) (err error) {
	if o.dir == "" {
		o.dir = os.TempDir()
	}
	dir, err := os.MkdirTemp(o.dir, "ftplockd-bench-")
	if err != nil {
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if o.profile != "" {
		if err := os.MkdirAll(o.profile, 0o755); err != nil {
			return err
		}
	}
	all, notes, err := newContest(ctx, dir)
	if err != nil {
		return err
	}
	for _, g := range o.selected() {
		r := newResults(g)
		for round := range g.rounds(o) {
			for _, s := range rotate(keep(all.servers(g), o.only), round) {
				fmt.Fprintf(os.Stderr, "%s, round %d of %d: %s\n", g.name, round+1, g.rounds(o), s.name)
				if err := measure(ctx, o, g, s, round, r); err != nil {
					return fmt.Errorf("%s: %w", s.name, err)
				}
			}
		}
		r.order = names(keep(all.servers(g), o.only))
		r.print(os.Stdout)
		notes = append(notes, r.failed()...)
	}
	for _, n := range notes {
		fmt.Println("-", n)
	}
	return nil
}

// measure starts one server, does all that the group has for it, and ends it. What a server fails in is left out of the
// tables and noted; that it does not end is an error.
func measure(ctx context.Context, o options, g group, s server, round int, into *results) (err error) {
	p, err := s.start(ctx, g.tls)
	if err != nil {
		into.fail(s.name, "start", err)
		return ctx.Err()
	}
	defer func() {
		err = errors.Join(err, p.Stop())
		err = errors.Join(err, settle(o.dir))
	}()
	for _, row := range g.rows {
		if !s.can(row.needs) {
			continue
		}
		profile := ""
		if o.profile != "" && round == 0 && s.profiled {
			profile = filepath.Join(o.profile, fileName(g.name+" "+row.name+" "+s.name))
		}
		values, rerr := watched(p, profile, func() ([]float64, error) { return row.run(ctx, p) })
		if err := ctx.Err(); err != nil {
			return err
		}
		into.add(s.name, row, values, rerr)
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

// keep returns the servers whose names contain one of the words, separated by commas; all if there is none.
func keep(all []server, words string) []server {
	var kept []server
	for _, s := range all {
		for w := range strings.SplitSeq(words, ",") {
			if strings.Contains(s.name, w) {
				kept = append(kept, s)
				break
			}
		}
	}
	return kept
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
