//go:build linux

package main

import (
	"errors"
	"image/png"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/integration/peers"
)

// example is a group with one row of two columns, in tables of their own.
func example() group {
	return group{name: "g", title: "things", place: place{fs: "ext4"}, rows: []row{{name: "r", columns: []column{
		{Title: "Rate", Heading: "1 conn.", Unit: perSec, Ratio: true},
		{Title: "Time", Heading: "1 conn.", Unit: nanoseconds},
	}}}}
}

func TestTableHasMediansSpreadAndRatiosToTheReference(t *testing.T) {
	r := newResults(example())
	r.Servers = []string{"ftplockd", reference, "broken"}
	for _, v := range []float64{300, 100, 200} {
		r.add("ftplockd", 0, []float64{v, 5e3}, nil)
		r.add(reference, 0, []float64{400, 7e3}, nil)
	}
	r.add("broken", 0, nil, errors.New("no\nway"))
	r.add("broken", 0, nil, errors.New("later"))
	var out strings.Builder
	r.print(&out)
	want := `### Rate

| server | 1 conn. |
|---|---:|
| ftplockd | 200 ±50 % (0.50) |
| vsftpd | 400 ±0 % (1.00) |

### Time

| server | 1 conn. |
|---|---:|
| ftplockd | 5.0 us |
| vsftpd | 7.0 us |

`
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
	if notes := r.failed(); !slices.Equal(notes, []string{"things on ext4: broken, r: no; way"}) {
		t.Errorf("notes %q", notes)
	}
}

// full is a report in which every server does everything as well as every other, but for those whose figures are multiplied.
func full(t *testing.T, times map[string]float64) *report {
	t.Helper()
	o, err := parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	places := []place{{fs: "ext4"}, {fs: "tmpfs"}}
	r := &report{Places: []string{"ext4", "tmpfs"}, Machine: machine{Processors: 2, Model: "CPU"}}
	for _, g := range o.selected(places) {
		results := newResults(g)
		for _, m := range g.modes {
			results.Servers = append(results.Servers, m.name)
		}
		results.Servers = append(results.Servers, append(others(), echoName, floorName)...)
		for i, row := range g.rows {
			for _, s := range results.Servers {
				f := 1.0
				if by, ok := times[s]; ok {
					f = by
				}
				values := slices.Repeat([]float64{10 * f}, len(row.columns))
				results.add(s, i, values, nil)
			}
		}
		r.Groups = append(r.Groups, results)
	}
	return r
}

func verdicts(r *report, part string) (all []string) {
	for _, target := range r.targets() {
		if text := target.String(); strings.Contains(text, part) {
			all = append(all, text)
		}
	}
	return all
}

func TestTargetsAreMetFromTheirGoalOn(t *testing.T) {
	level := full(t, nil)
	fast := full(t, map[string]float64{bareLocks: 1.2, durableLocks: 5, usualName: 5, quickFiles: 1})
	for _, tc := range []struct {
		part        string
		level, fast int // how many are met
		all         int
	}{
		{"locks, 8 conn. on tmpfs: " + bareLocks + " / vsftpd", 0, 1, 1},
		{bareLocks + " / " + echoName, 6, 6, 6},
		{durableLocks + " / vsftpd", 0, 1, 1}, // the best of equals
		{durableLocks + " / " + echoName, 1, 1, 1},
		{realDirectories + " / vsftpd", 2, 2, 2},
		{"login, logins", 0, 1, 1},
		{"the fewest turns", 4, 4, 4},
		{"memory of each", 2, 1, 2}, // 50 KiB are too many
		{"files, 512 MiB up", 1, 1, 1},
		{"tls, 512 MiB down", 1, 1, 1},
		{"files, 1 KiB up, 8 programs: " + quickFiles + " / vsftpd", 1, 1, 1},
		{"files, 1 KiB up, 8 programs on tmpfs: " + quickFiles + " / vsftpd", 1, 1, 1},
		{"files, 1 KiB up, 1 conn.: " + quickFiles + " / proftpd", 0, 0, 1}, // twice its rate
		{"files, 1 KiB down, 1 program: " + quickFiles + " / proftpd", 0, 0, 1},
		{quickFiles + " / proftpd", 0, 0, 12},
		{quickFiles + " / " + floorName, 0, 0, 0},
		{"rows of files, of 26", 1, 1, 1},
	} {
		for _, of := range []struct {
			r    *report
			want int
		}{{level, tc.level}, {fast, tc.fast}} {
			got := verdicts(of.r, tc.part)
			met := len(slices.DeleteFunc(slices.Clone(got), func(v string) bool { return !strings.HasPrefix(v, "met: ") }))
			if len(got) != tc.all || met != of.want {
				t.Errorf("%s: %d of %d met, want %d of %d: %q", tc.part, met, len(got), of.want, tc.all, got)
			}
		}
	}
}

func TestTargetsThatAreMissedSayByHowMuch(t *testing.T) {
	r := full(t, map[string]float64{"pure-ftpd": 4})
	got := verdicts(r, realDirectories)
	if len(got) == 0 || !strings.HasPrefix(got[0], "missed: 0.25 (at least 1): locks, 64 conn. on ext4: ") || !strings.HasSuffix(got[0], " / pure-ftpd") {
		t.Errorf("%q", got)
	}
	if got := verdicts(r, "rows of files"); len(got) != 1 || !strings.HasPrefix(got[0], "missed: 0.00 (at least 14)") {
		t.Errorf("%q", got)
	}
}

func TestSmallFilesAreToBeTwiceAsFastAsProftpd(t *testing.T) {
	for by, want := range map[float64]int{1.99: 0, 2: 12} {
		met := 0
		for _, v := range verdicts(full(t, map[string]float64{quickFiles: by}), quickFiles+" / proftpd") {
			if strings.HasPrefix(v, "met: ") {
				met++
			}
		}
		if met != want {
			t.Errorf("at %v times its rate %d are met, want %d", by, met, want)
		}
	}
}

func TestWhatWasNotMeasuredIsNotMet(t *testing.T) {
	r := &report{Places: []string{"tmpfs"}}
	for _, target := range r.targets() {
		if target.met() || !strings.HasPrefix(target.String(), "not measured: ") {
			t.Error(target)
		}
	}
}

func TestOneClientThatStarvesInOneRoundMissesTheTarget(t *testing.T) {
	r := full(t, nil)
	row := r.find(contendedGroup, "", tryingRow)
	row.Rounds[bareLocks] = [][]float64{{9, 128, 3, 9, 0}, {9, 127, 0, 9, 0}, {9, 128, 3, 9, 0}}
	if got := verdicts(r, "the fewest turns that one of them had in any round: "+bareLocks); len(got) != 1 || !strings.HasPrefix(got[0], "missed: 0.00") {
		t.Errorf("%q", got)
	}
}

func TestShortTable(t *testing.T) {
	r := full(t, map[string]float64{bareLocks: 3, "proftpd": 0.5})
	r.find(filesGroup, "ext4", programRow(up, 1)).Rounds[floorName] = [][]float64{{20, 1}}
	var out strings.Builder
	r.shortTable(&out)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for _, want := range []string{
		"| lock pairs/s, 64 connections, ext4, `directories = false` | 10 (1.00) | 30 (3.00) | 10 | 5.0 (0.50) | 10 (1.00) | 10 (1.00) | 10 (1.00) | 10 (1.00) |",
		"| logins/s, 16 at once | 10 (1.00) |  | 10 | 5.0 (0.50) | 10 (1.00) | 10 (1.00) | 10 (1.00) | 10 (1.00) |",
		"| 1 KiB up, ext4, files/s | 10 (1.00) | 10 (1.00) | 10 | 5.0 (0.50) | 10 (1.00) | 10 (1.00) | 10 (1.00) | 20 (2.00) |",
		"| one lock, 128 busy clients: how many get a turn | 10 | 30 | 10 | 5 | 10 | 10 | 10 | 10 |",
		"| KiB of memory for each of 10,000 idle sessions | 10.0 (1.00) | 30.0 (3.00) | 10.0 | 5.0 (0.50) | 10.0 (1.00) | 10.0 (1.00) | 10.0 (1.00) | 10.0 (1.00) |",
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("no line %s in\n%s", want, out.String())
		}
	}
	if rows := len(lines) - 2; rows != len(r.shortRows()) || rows > 18 {
		t.Errorf("%d rows", rows)
	}
	for _, line := range lines {
		if n := strings.Count(line, "|"); n != 10 {
			t.Errorf("%d bars: %s", n, line)
		}
	}
}

func TestReportIsTheSameAfterSaving(t *testing.T) {
	r := full(t, map[string]float64{"vsftpd": math.Pi})
	r.Servers = []settings{{Server: "vsftpd", Version: "3", Plain: []string{"a=b"}}}
	r.Notes = []string{"proftpd is missing"}
	file := filepath.Join(t.TempDir(), "report.json")
	if err := r.save(file); err != nil {
		t.Fatal(err)
	}
	again, err := readReport(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range r.Groups {
		g.errs = nil // notes are made of them
	}
	if !reflect.DeepEqual(r, again) {
		t.Error("it has changed")
	}
	if r.long() != again.long() || r.short() != again.short() {
		t.Error("its documents have changed")
	}
}

func TestDocumentsAreRewrittenBetweenTheirMarksOnly(t *testing.T) {
	old := "# Title\n\n" + firstMark + "\nold\n" + lastMark + "\n\nEnd\n"
	got, err := between(old, "new\n")
	if want := strings.Replace(old, "old", "new", 1); got != want || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	for _, broken := range []string{
		"", firstMark + "\n", lastMark + "\n", lastMark + "\n" + firstMark + "\n", "x" + firstMark + "\n",
		old + firstMark + "\n", lastMark + "\n" + old,
	} {
		if got, err := between(broken, "new\n"); err == nil {
			t.Errorf("%q became %q", broken, got)
		}
	}
}

func TestTheProjectsDocumentsHaveTheMarks(t *testing.T) {
	if err := checkDocuments("../.."); err != nil {
		t.Error(err)
	}
}

func TestIntoDocumentsWritesAllOfThem(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "docs"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{readmeFile, benchFile} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("before\n"+firstMark+"\n"+lastMark+"\nafter\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r := full(t, nil)
	if err := r.intoDocuments(dir); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{readmeFile: "docs/" + locksPlot, benchFile: "### Targets"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !strings.Contains(string(text), want) || !strings.HasPrefix(string(text), "before\n") || !strings.HasSuffix(string(text), "\nafter\n") {
			t.Errorf("%s has no %q, or not what stood around it: %v", name, want, err)
		}
	}
	for _, name := range []string{locksPlot, filesPlot} {
		checkPicture(t, filepath.Join(dir, "docs", name))
	}
	left, err := filepath.Glob(filepath.Join(dir, "*.new"))
	if len(left) > 0 || err != nil {
		t.Errorf("left over: %q, %v", left, err)
	}
}

// checkPicture is for plots of about 1000 x 600.
func checkPicture(t *testing.T, name string) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	picture, err := png.Decode(f)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if b := picture.Bounds(); b.Dx() < 900 || b.Dx() > 1200 || b.Dy() < 500 || b.Dy() > 700 {
		t.Errorf("%s is %v", name, b)
	}
}

func TestNoPlotOfNothing(t *testing.T) {
	dir := t.TempDir()
	if err := new(report).plot(dir); err != nil {
		t.Fatal(err)
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "*")); len(files) > 0 {
		t.Errorf("%q", files)
	}
}

func TestServersLookDifferent(t *testing.T) {
	for _, together := range [][]string{
		{bareLocks, durableLocks, realDirectories, durableBoth, "vsftpd", "proftpd", "pure-ftpd", bareName, echoName},
		append([]string{quickFiles, durableFiles}, others()...),
	} {
		for i, a := range together {
			for _, b := range together[:i] {
				if reflect.DeepEqual(lookOf(a).shape, lookOf(b).shape) {
					t.Errorf("%s and %s have the same shape", a, b)
				}
			}
		}
	}
}

func TestStepsOfALogarithmicAxis(t *testing.T) {
	var got []string
	for _, tick := range steps(0.4, 3000) {
		got = append(got, tick.Label)
	}
	if want := strings.Fields("0.5 1 2 5 10 20 50 100 200 500 1k 2k"); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSettingsAreThoseOfTheServerAsItIsByDefault(t *testing.T) {
	dir := t.TempDir()
	r := new(report)
	for _, run := range []struct {
		name, content string
		tls           bool
	}{
		{bareLocks, "durable = false", false},
		{usualName, "durable = true", false},
		{realDirectories, "durable = false", false},
		{quickFiles, "durable = false\ntls = 1", true},
		{durableFiles, "durable = true\ntls = 1", true},
		{quickFiles, "durable = false\ntls = 1", true},
	} {
		file := filepath.Join(dir, "x.toml")
		if err := os.WriteFile(file, []byte(run.content), 0o600); err != nil {
			t.Fatal(err)
		}
		p := &peers.Process{Cmd: exec.Command("/no/ftplockd", "--config", file), Address: "127.0.0.1:65001"}
		r.describe(t.Context(), run.name, &process{Process: p, tls: run.tls}, dir)
	}
	want := []settings{{Server: "ftplockd", Plain: []string{"$ ftplockd --config DIR/x.toml", "durable = true"}, TLS: []string{"tls = 1"}}}
	if !reflect.DeepEqual(r.Servers, want) {
		t.Errorf("got %q, want %q", r.Servers, want)
	}
}

func TestSettingsAreWithoutWhatIsAnotherOneEachTime(t *testing.T) {
	for _, tc := range []struct{ line, want string }{
		{`root = "/var/tmp/ftplockd-bench-1/ftplockd-22/root"`, `root = "DIR/root"`},
		{"rsa_cert_file=/dev/shm/ftplockd-bench-77/cert.pem", "rsa_cert_file=DIR/cert.pem"},
		{"ModulePath /root/.cache/ftplockd-peers/proftpd-core+x/usr/lib/proftpd", "ModulePath /usr/lib/proftpd"},
		{"listen_port=28123", "listen_port=PORT"},
		{"pasv_max_port=281234", "pasv_max_port=281234"},
	} {
		if got := impersonal(tc.line, "/var/tmp/ftplockd-bench-1", "28123"); got != tc.want {
			t.Errorf("%q became %q, want %q", tc.line, got, tc.want)
		}
	}
}
