//go:build linux

// Command bench does the same work on ftplockd, on vsftpd and on bare ftpserverlib, and prints their speed as Markdown.
//
//	go run ./integration/bench [-rounds N] [-only REGEXP] [-servers REGEXP] [-dir DIR] [-before BINARY] [-idle N] [-short] [-write]
//
// A run has rounds. In each round every row is measured on every server, one server right after the other, so that all
// of them see the same machine. A figure is the median of the rounds. A ratio is the median of the ratios of the rounds.
//
// The table goes to standard output, progress to standard error. docs/bench.md describes the rows.
//
// Start reading at rows.go for the rows, at measure.go for the method, at servers.go for the servers.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"
)

func main() {
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options are the command line.
type options struct {
	rounds  int
	only    *regexp.Regexp // names of rows
	servers *regexp.Regexp // names of the servers that are not ftplockd
	dir     string
	before  string
	idle    int
	short   bool
	write   bool
}

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.IntVar(&o.rounds, "rounds", 5, "measure each row `N` times on each server")
	only := flags.String("only", "", "measure only the rows whose names match `REGEXP`")
	servers := flags.String("servers", "", "measure only the other servers whose names match `REGEXP`, such as vsftpd or none")
	flags.StringVar(&o.dir, "dir", "/var/tmp", "make the directories of the servers in `DIR`, which should be on a disk")
	flags.StringVar(&o.before, "before", "", "also measure an older ftplockd: `BINARY`")
	flags.IntVar(&o.idle, "idle", 10000, "measure memory with `N` idle sessions")
	flags.BoolVar(&o.short, "short", false, "use small files, few sessions and little time, and download no server: only to see that everything works")
	flags.BoolVar(&o.write, "write", false, "write the table into docs/bench.md")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 || o.rounds < 1 || o.idle < 1 {
		return o, errors.New("bench takes no arguments, and -rounds and -idle must be at least 1")
	}
	if o.only, err = regexp.Compile(*only); err != nil {
		return o, err
	}
	o.servers, err = regexp.Compile(*servers)
	return o, err
}

// run measures and writes the report.
func run(ctx context.Context, o options) error {
	start := time.Now()
	r, err := measureAll(ctx, o)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "all in %v\n", time.Since(start).Round(time.Second))
	fmt.Print(r.long(), r.goals())
	if o.write {
		return rewrite(benchFile, r.long())
	}
	return nil
}
