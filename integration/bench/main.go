//go:build linux

// Command bench measures how many locks per second an FTP server gives and takes back (MKD and RMD of one name
// by each client), how long a pair takes, and how much memory an idle connection costs, for ftplockd in its four
// modes beside a bare ftpserverlib and vsftpd, all on one disk and in one run.
//
//	go run ./integration/bench [-dir DIR] [-rounds N] [-time D] [-connections 1,8,64,256] [-idle 1000]
//
// The servers take turns in each round, so that whatever else the machine does meets all of them; the
// tables have medians over the rounds. The result is Markdown on standard output, progress goes to standard error.
//
// Caveats: client and server share the machine's processors. vsftpd is run if it is installed, or unpacked from its
// Debian package, which needs root; without it its lines are missing and the reason is printed.
//
// Start reading at servers.go for what is compared, at load.go for how.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"
)

type options struct {
	dir         string
	rounds      int
	time        time.Duration
	connections []int
	idle        int
	only        string
}

func main() {
	var o options
	var connections string
	flag.StringVar(&o.dir, "dir", "", "where the servers' trees and states are made, on the disk to be measured (default: the temporary directory)")
	flag.IntVar(&o.rounds, "rounds", 3, "how often each server is measured; medians are reported")
	flag.DurationVar(&o.time, "time", 1500*time.Millisecond, "how long each measurement takes")
	flag.StringVar(&connections, "connections", "1,8,64,256", "numbers of clients at once")
	flag.IntVar(&o.idle, "idle", 1000, "how many idle connections memory is measured with; 0: not measured")
	flag.StringVar(&o.only, "only", "", "only servers whose name contains this")
	flag.Parse()
	for text := range strings.SplitSeq(connections, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			fmt.Fprintln(os.Stderr, "bench: -connections wants numbers:", connections)
			os.Exit(2)
		}
		o.connections = append(o.connections, n)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := bench(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// bench runs all and prints the tables.
func bench(ctx context.Context, o options) (err error) {
	dir, err := os.MkdirTemp(o.dir, "ftplockd-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	servers, notes, err := contestants(ctx, dir, o.only)
	if err != nil {
		return err
	}
	results := make(map[string]*measured)
	for round := range o.rounds {
		for _, s := range servers {
			fmt.Fprintf(os.Stderr, "round %d of %d: %s\n", round+1, o.rounds, s.name)
			if results[s.name] == nil {
				results[s.name] = &measured{}
			}
			if err := measure(ctx, s, o, round, results[s.name]); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	report(os.Stdout, o, servers, results)
	for _, n := range notes {
		fmt.Println(n)
	}
	return nil
}

// measure starts one server, measures it with each number of clients, and ends it.
func measure(ctx context.Context, s server, o options, round int, into *measured) (err error) {
	p, err := s.start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	for _, n := range o.connections {
		l, err := load(ctx, p.address, s.base, n, o.time)
		if err != nil {
			return fmt.Errorf("%d connections: %w", n, err)
		}
		into.add(n, l)
	}
	if round == 0 && o.idle > 0 {
		into.perIdle, err = idleMemory(p, o.idle)
	}
	return err
}
