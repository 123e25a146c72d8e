//go:build linux

package main

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestMedianLeavesItsValuesInOrder(t *testing.T) {
	nan := math.NaN()
	for _, tc := range []struct {
		of   []float64
		want float64
	}{
		{nil, nan}, {[]float64{nan}, nan}, {[]float64{3}, 3}, {[]float64{9, 1}, 5}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 3, 2}, 2.5},
		{[]float64{9, nan, 1, 2}, 2},
	} {
		before := slices.Clone(tc.of)
		if got := median(tc.of); !same(got, tc.want) || !slices.EqualFunc(before, tc.of, same) {
			t.Errorf("median(%v) = %v, want %v; it is %v now", before, got, tc.want, tc.of)
		}
	}
}

func same(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }

// figures returns figures with values alone.
func figures(values ...float64) (all []figure) {
	for _, v := range values {
		all = append(all, figure{v, noCPU})
	}
	return all
}

func TestRatioIsTheMedianOfTheRounds(t *testing.T) {
	nan := math.NaN()
	for _, tc := range []struct {
		of, to []float64
		want   float64
	}{
		{[]float64{10, 20, 90}, []float64{10, 40, 30}, 1}, // 1, 0.5 and 3; the medians' ratio is 2/3
		{[]float64{10, nan, 30}, []float64{5, 1, 10}, 2.5},
		{[]float64{10, 20, 30}, []float64{5, 10, nan}, 2},
		{[]float64{10, 20}, []float64{5}, 2},
		{[]float64{10}, nil, nan},
	} {
		r := &row{rounds: map[string][]figure{ours: figures(tc.of...), vsftpd: figures(tc.to...)}}
		if got := r.ratio(ours, vsftpd); !same(got, tc.want) {
			t.Errorf("%v to %v: %v, want %v", tc.of, tc.to, got, tc.want)
		}
	}
}

func TestTargets(t *testing.T) {
	rows := []*row{
		{name: "hand-over, a", unit: "ms", rounds: map[string][]figure{ours: figures(0.4)}},
		{name: "hand-over, b", unit: "ms", rounds: map[string][]figure{ours: figures(1.5)}},
		{name: "f", file: true, rounds: map[string][]figure{ours: figures(8), vsftpd: figures(10)}},
		{name: "g", file: true, rounds: map[string][]figure{ours: figures(6), vsftpd: figures(10)}},
		{name: "k", file: true, rounds: map[string][]figure{ours: figures(6)}},
	}
	want := []string{
		"reached: hand-over, a: 0.40 ms (at most 0.5)",
		"missed: hand-over, b: 1.50 ms (at most 0.5)",
		"reached: f: 0.80 times vsftpd (at least 0.8)",
		"missed: g: 0.60 times vsftpd (at least 0.8)",
		"not measured: k, times vsftpd",
	}
	if got := targets(rows); !slices.Equal(got, want) {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
}

func TestEachTargetIsOfARow(t *testing.T) {
	o, err := parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	var rows []*row
	for _, m := range measurements(o) {
		rows = append(rows, m.rows...)
	}
	for _, wanted := range wanted(rows) {
		if !slices.ContainsFunc(rows, func(r *row) bool { return strings.HasPrefix(r.name, wanted.row) }) {
			t.Errorf("there is no row %q", wanted.row)
		}
	}
}

func TestPassivePort(t *testing.T) {
	for _, tc := range []struct {
		line string
		port int
		ok   bool
	}{
		{"227 Entering Passive Mode (127,0,0,1,117,48).\r\n", 117<<8 | 48, true},
		{"227 Entering Passive Mode (127,0,0,1,256,1)\r\n", 0, false},
		{"227 Entering Passive Mode (127,0,0,1,1)\r\n", 0, false},
		{"227 Entering Passive Mode (127,0,0,1,117,48\r\n", 0, false},
		{"500 What?\r\n", 0, false},
	} {
		if port, ok := passivePort([]byte(tc.line)); ok != tc.ok || ok && port != tc.port {
			t.Errorf("passivePort(%q) = %d, %v, want %d, %v", tc.line, port, ok, tc.port, tc.ok)
		}
	}
}

// TestShortRun measures some rows and writes them into documents. vsftpd takes part if the machine has it.
func TestShortRun(t *testing.T) {
	o, err := parse([]string{"-short", "-rounds", "2", "-dir", os.TempDir(), "-only", "^lock pairs, 8 .*directories = false, durable = true|^1 KiB down, 1 |^hand-over.*true, |^NOOP|^lock pairs 12 .*false"})
	if err != nil {
		t.Fatal(err)
	}
	r, err := measureAll(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range r.rows {
		for server, rounds := range row.rounds {
			if len(rounds) != 2 || !(slices.Min(values(rounds)) > 0) {
				t.Errorf("%s: %s has %v", row.name, server, rounds)
			}
		}
		if len(row.rounds[ours]) == 0 {
			t.Errorf("%s: ftplockd has no figures", row.name)
		}
	}
	if len(r.rows) != 5 || len(r.rows[0].rounds[bare]) == 0 || !(r.rows[0].cpu(ours) > 0) {
		t.Errorf("%d rows:\n%s", len(r.rows), r.long())
	}
	checkDocument(t, r)
}

// TestAnEarlierServerIsMeasuredAlone measures one row on two versions of ftplockd.
func TestAnEarlierServerIsMeasuredAlone(t *testing.T) {
	program := filepath.Join(t.TempDir(), "ftplockd")
	if out, err := exec.Command("go", "build", "-o", program, "github.com/ftplockd/ftplockd/cmd/ftplockd").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	o, err := parse([]string{"-short", "-rounds", "1", "-dir", os.TempDir(), "-before", program, "-servers", "none", "-only", "^lock pairs, 8 .*false.*false"})
	if err != nil {
		t.Fatal(err)
	}
	r, err := measureAll(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.rows) != 1 || len(r.rows[0].rounds) != 2 || !(r.rows[0].ratio(ours, earlier) > 0) || len(r.notes) > 0 {
		t.Errorf("%s", r.long())
	}
	text, err := onlyKnown(program, "root = 1\n[ftp]\nno_such_key = 1\n")
	if err != nil || text != "root = 1\n[ftp]\n" {
		t.Errorf("%q, %v", text, err)
	}
}

func checkDocument(t *testing.T, r *report) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "bench.md")
	if err := rewrite(file, r.long()); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("without a document: %v", err)
	}
	if err := os.WriteFile(file, []byte("before\n"+firstMark+"old\n"+lastMark+"after\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := rewrite(file, r.long()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if s := string(text); err != nil || !strings.HasPrefix(s, "before\n"+firstMark) || !strings.HasSuffix(s, lastMark+"after\n") ||
		strings.Contains(s, "old\n") || !strings.Contains(s, "| lock pairs, 8 connections, directories = false, durable = true |") {
		t.Errorf("%v\n%s", err, s)
	}
}

// TestSystemCallsOfAPairAreCounted counts with strace, which .ci/run installs.
func TestSystemCallsOfAPairAreCounted(t *testing.T) {
	if _, err := exec.LookPath("strace"); err != nil {
		if os.Getenv("FTPLOCKD_REQUIRE_CLIENTS") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	o, err := parse([]string{"-short", "-rounds", "1", "-dir", os.TempDir(), "-servers", bare, "-only", "^system calls of a lock pair, 16 .*false.*false"})
	if err != nil {
		t.Fatal(err)
	}
	r, err := measureAll(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	// Each pair is two reads and two writes of the library; a difference of two short runs varies.
	if len(r.rows) != 1 || !(r.rows[0].median(ours) >= 2) || !(r.rows[0].median(bare) >= 2) || len(r.notes) > 0 {
		t.Errorf("%s", r.long())
	}
}
