//go:build linux

package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ftplockd/ftplockd/integration/peers"
)

func TestPercentileIsTheNearestRank(t *testing.T) {
	hundred := make([]int, 100)
	for i := range hundred {
		hundred[i] = i + 1
	}
	for _, tc := range []struct {
		of            []int
		percent, want int
	}{
		{nil, 50, 0},
		{[]int{7}, 50, 7},
		{[]int{7}, 99, 7},
		{[]int{1, 2}, 50, 1},
		{[]int{1, 2}, 51, 2},
		{[]int{1, 2, 3}, 50, 2},
		{[]int{1, 2, 3}, 0, 1},
		{hundred, 50, 50},
		{hundred, 99, 99},
		{hundred, 100, 100},
	} {
		if got := percentile(tc.of, tc.percent); got != tc.want {
			t.Errorf("percentile(%d values, %d) = %d, want %d", len(tc.of), tc.percent, got, tc.want)
		}
	}
}

func TestMedianLeavesItsValuesInOrder(t *testing.T) {
	for _, tc := range []struct {
		of   []float64
		want float64
	}{
		{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1}, 5}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 3, 2}, 2.5},
	} {
		before := slices.Clone(tc.of)
		if got := median(tc.of); got != tc.want || !slices.Equal(before, tc.of) {
			t.Errorf("median(%v) = %v, want %v; it is %v now", before, got, tc.want, tc.of)
		}
	}
}

func TestSpreadIsHalfTheRange(t *testing.T) {
	for _, tc := range []struct {
		of   []float64
		want float64
	}{
		{nil, 0}, {[]float64{3}, 0}, {[]float64{8, 10, 14}, 0.3}, {[]float64{0, 0}, 0},
	} {
		if got := spread(tc.of); got != tc.want {
			t.Errorf("spread(%v) = %v, want %v", tc.of, got, tc.want)
		}
	}
}

func TestRatesCountAllClients(t *testing.T) {
	got := rates([][]time.Duration{{3, 1}, nil, {2, 4}}, 2*time.Second)
	if want := []float64{2, 2, 4}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestNumbersAsPeopleReadThem(t *testing.T) {
	for _, tc := range []struct{ got, want string }{
		{perSec.format(0), "0.0"}, {perSec.format(9.94), "9.9"}, {megabytesPerSec.format(10), "10"}, {perSec.format(1234.5), "1234"},
		{kibibytes.format(23.96), "24.0"}, {percent.format(99.5), "99.5"}, {things.format(3), "3"}, {nanoseconds.format(900), "0.9 us"},
		{ratioText(0.996), "1.00"}, {ratioText(12.34), "12.3"}, {ratioText(123.4), "123"},
		{short(900), "0.9 us"}, {short(10e3), "10 us"}, {short(999e3), "999 us"}, {short(1.25e6), "1.2 ms"}, {short(1.5e9), "1.50 s"},
	} {
		if tc.got != tc.want {
			t.Errorf("got %q, want %q", tc.got, tc.want)
		}
	}
}

func TestReplyCode(t *testing.T) {
	for _, tc := range []struct {
		line string
		code int
		last bool
	}{
		{"257 \"/a\" made\r\n", 257, true},
		{"220-Welcome\r\n", 0, false},
		{" 220 indented\r\n", 0, false},
		{"22x \r\n", 0, false},
		{"221\n", 0, false},
		{"", 0, false},
	} {
		if code, last := replyCode([]byte(tc.line)); code != tc.code || last != tc.last {
			t.Errorf("replyCode(%q) = %d, %v, want %d, %v", tc.line, code, last, tc.code, tc.last)
		}
	}
}

func TestPassivePort(t *testing.T) {
	for _, tc := range []struct {
		line string
		port int
		ok   bool
	}{
		{"227 Entering Passive Mode (127,0,0,1,117,48)\r\n", 117<<8 | 48, true},
		{"227 Entering Passive Mode (127,0,0,1,117,48).\r\n", 117<<8 | 48, true},
		{"227 Entering Passive Mode (127,0,0,1,256,1)\r\n", 0, false},
		{"227 Entering Passive Mode (127,0,0,1,1)\r\n", 0, false},
		{"227 Entering Passive Mode (127,0,0,1,117,48\r\n", 0, false},
		{"227 =127,0,0,1,117,48\r\n", 0, false},
		{"227 Entering Passive Mode (127,0,0,1,117,48,1)\r\n", 0, false},
		{"227 Entering Passive Mode (127,0,0,1,,48)\r\n", 0, false},
		{"227 Entering Passive Mode (0,0,0,0,0,21)\r\n", 21, true},
	} {
		if port, ok := passivePort([]byte(tc.line)); ok != tc.ok || ok && port != tc.port {
			t.Errorf("passivePort(%q) = %d, %v, want %d, %v", tc.line, port, ok, tc.port, tc.ok)
		}
	}
}

func TestLinesFillEverySizeThatIsMeasured(t *testing.T) {
	if len(textLine) != 64 || len(text())%64 != 0 {
		t.Errorf("a line has %d bytes", len(textLine))
	}
}

func TestProcFiles(t *testing.T) {
	if pid, ok := parentOf([]byte("17 (a) b (c) S 4 17 17 0 -1")); pid != 4 || !ok {
		t.Errorf("parent %d, %v", pid, ok)
	}
	if _, ok := parentOf([]byte("17 (a)")); ok {
		t.Error("a parent without a number")
	}
	if kb, ok := pss([]byte("5581-7ffd ---p 00000000 00:00 0 [rollup]\nRss:     900 kB\nPss:     123 kB\nPss_Dirty:  7 kB\n")); kb != 123 || !ok {
		t.Errorf("pss %d, %v", kb, ok)
	}
	if free := available([]byte("MemTotal:  900 kB\nMemAvailable:   3 kB\n")); free != 3<<10 {
		t.Errorf("%d bytes are available", free)
	}
	if model := processorModel([]byte("processor: 0\nmodel name\t: Some CPU\n"), "x"); model != "Some CPU" {
		t.Errorf("model %q", model)
	}
	if _, ok := pss([]byte("Pss_Dirty:  7 kB\n")); ok {
		t.Error("pss of another line")
	}
}

func TestProcessorTime(t *testing.T) {
	for content, want := range map[string]time.Duration{"1234 99 7\n": 1234, "": 0, "x 1 2\n": 0} {
		if got := onProcessor([]byte(content)); got != want {
			t.Errorf("%q: %v, want %v", content, got, want)
		}
	}
	then := spent{"old": 5, "ended": 100}
	if got := (spent{"old": 7, "new": 3}).since(then); got != 5 {
		t.Errorf("%v since then, want 5ns", got)
	}
	if each(time.Second, 0) != 0 || each(10, 4) != 2.5 {
		t.Error("what each costs is wrong")
	}
}

func TestEveryGroupIsInTheTables(t *testing.T) {
	o, err := parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, g := range o.selected([]place{{fs: "ext4"}, {fs: "tmpfs"}}) {
		got = append(got, g.name+" "+g.place.fs)
		for _, row := range g.rows {
			if len(row.columns) == 0 || row.needs == 0 || len(g.modes) == 0 {
				t.Errorf("%s, %s: nothing to show or nobody to measure", g.title, row.name)
			}
		}
	}
	want := []string{"locks ext4", "locks tmpfs", "contended ext4", "login ext4", "files ext4", "files tmpfs", "tls ext4", "memory ext4", "memory ext4", "memory ext4"}
	if !slices.Equal(got, want) {
		t.Errorf("groups %q, want %q", got, want)
	}
}

func TestRowsChooseGroups(t *testing.T) {
	o, err := parse([]string{"-rows", "tls,locks"})
	if err != nil {
		t.Fatal(err)
	}
	all := o.selected([]place{{fs: "ext4"}})
	if len(all) != 2 || all[0].name != locksGroup || all[1].name != tlsGroup {
		t.Errorf("%d groups", len(all))
	}
}

func TestPaceOfGroups(t *testing.T) {
	o := options{rounds: 5}
	for p, want := range map[pace]int{always: 5, halfAsOften: 3, once: 1} {
		if got := (group{pace: p}).rounds(o); got != want {
			t.Errorf("pace %d: %d rounds, want %d", p, got, want)
		}
	}
}

func TestFairness(t *testing.T) {
	got := fairness([]int{0, 3, 1, 0}, []int{10, 20, 5, 5}, 2*time.Second)
	if want := []float64{2, 2, 0, 3, 90}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := fairness([]int{0}, []int{0}, time.Second); got[4] != 0 {
		t.Errorf("of no tries %v were in vain", got[4])
	}
}

func TestFileSystemsAreTold(t *testing.T) {
	for magic, want := range map[int64]string{0xef53: "ext4", 0x01021994: "tmpfs", 0x58465342: "xfs", 7: "file system 0x7"} {
		if got := fileSystemName(magic); got != want {
			t.Errorf("%#x: %q, want %q", magic, got, want)
		}
	}
}

func TestPlacesOfOneFileSystemHaveNamesOfTheirOwn(t *testing.T) {
	dir := t.TempDir()
	places, err := makePlaces([]string{dir, dir})
	if err != nil || len(places) != 2 || places[0].fs == places[1].fs || places[0].dir == places[1].dir {
		t.Errorf("%v, %v", places, err)
	}
	if places, err = makePlaces([]string{dir, dir + "/none"}); err == nil || len(places) != 1 {
		t.Errorf("%v, %v: the one that was made is to be removed by the caller", places, err)
	}
}

func TestCommandLine(t *testing.T) {
	for _, tc := range []struct {
		args, wrong string
	}{
		{"-rows locks,files -rounds 1", ""},
		{"-quick", ""},
		{"-rows lock", `not "lock"`},
		{"-connections 1,x", "-connections"},
		{"-connections 0", "-connections"},
		{"-idle 0", "-idle"},
		{"-rounds 0", "more than 0"},
		{"-large -1", "less than 0"},
		{"-quick -readme", "not for -readme"},
		{"more", "no arguments"},
	} {
		_, err := parse(strings.Fields(tc.args))
		if tc.wrong == "" && err != nil || tc.wrong != "" && (err == nil || !strings.Contains(err.Error(), tc.wrong)) {
			t.Errorf("%s: %v, want %q", tc.args, err, tc.wrong)
		}
	}
}

func TestEachRoundBeginsWithAnotherServer(t *testing.T) {
	list := []int{1, 2, 3}
	for by, want := range [][]int{{1, 2, 3}, {2, 3, 1}, {3, 1, 2}, {1, 2, 3}} {
		if got := rotate(list, by); !slices.Equal(got, want) {
			t.Errorf("rotate by %d: %v, want %v", by, got, want)
		}
	}
	if got := rotate([]int{}, 5); len(got) != 0 {
		t.Errorf("of nothing: %v", got)
	}
}

func TestKeepTakesPartsOfNames(t *testing.T) {
	all := []server{{name: "ftplockd, durable = true"}, {name: "vsftpd"}, {name: "proftpd"}}
	for words, want := range map[string]int{"": 3, "vsftpd": 1, "ftplockd,pro": 2, "durable = true": 1, "none": 0} {
		if got := keep(all, words); len(got) != want {
			t.Errorf("%q keeps %q", words, names(got))
		}
	}
}

func TestWorkIsTimedUntilTheLastClientIsThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		elapsed, err := make(crowd, 3).work(time.Second, func(i int, _ *client, until time.Time) error {
			time.Sleep(time.Until(until) + time.Duration(i)*time.Second)
			return nil
		})
		if elapsed != 3*time.Second || err != nil {
			t.Errorf("%v, %v", elapsed, err)
		}
		_, err = make(crowd, 2).work(0, func(i int, _ *client, _ time.Time) error {
			return map[int]error{1: io.EOF}[i]
		})
		if !errors.Is(err, io.EOF) {
			t.Errorf("%v instead of the client's error", err)
		}
	})
}

func TestMemoryOfThisProcess(t *testing.T) {
	pid := 1 << 30
	if got := family(pid); !slices.Equal(got, []int{pid}) {
		t.Errorf("family of nobody: %v", got)
	}
	if n, err := memoryOf(pid); n != 0 || err != nil {
		t.Errorf("nobody has %d bytes, %v", n, err)
	}
}

func TestTheFloorIsThereForSmallPlainFilesOnly(t *testing.T) {
	o, err := parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := new(contest)
	c.peers = []server{c.echo(), c.floor()}
	var got []string
	for _, g := range o.selected([]place{{fs: "ext4"}}) {
		all := c.servers(g)
		for _, row := range g.rows {
			if s := all[len(all)-1]; s.name == floorName && s.can(row.needs) {
				got = append(got, g.name+" "+row.name)
			}
		}
	}
	var want []string
	for _, row := range []func(way, int) string{smallRow, programRow} {
		want = append(want, "files "+row(up, 1), "files "+row(up, 8), "files "+row(down, 1), "files "+row(down, 8))
	}
	if !slices.Equal(got, want) {
		t.Errorf("it is in %q, want %q", got, want)
	}
}

func TestAbilities(t *testing.T) {
	echo := server{able: canLogin}
	if !echo.can(canLogin) || echo.can(canStore) || echo.can(canLogin|canTLS) || !(server{able: canFTP}).can(canStore|canTLS) {
		t.Error("abilities are mixed up")
	}
	if perSecond(3, 2*time.Second) != 1.5 {
		t.Error("3 in 2 s are 1.5 per second")
	}
	if _, err := connect(context.Background(), &process{Process: &peers.Process{Address: "127.0.0.1:0"}}); err == nil {
		t.Error("connected to nobody")
	}
}

func TestMemoryIsTouchedBeforeItIsMeasured(t *testing.T) {
	faults := func() int64 {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		return u.Minflt
	}
	const huge = 2 << 20 // the system may put so much in place at once
	before := faults()
	if err := warm(32 * huge); err != nil {
		t.Fatal(err)
	}
	if got := faults() - before; got < 32 {
		t.Errorf("%d pages were touched", got)
	}
	if err := warm(-1); err == nil {
		t.Error("memory that cannot be had is no error")
	}
}
