//go:build linux

package powerloss

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// record records a shell script that runs in the directory.
func record(t *testing.T, dir, script string) *Recording {
	t.Helper()
	cmd := exec.Command("sh", "-ec", script)
	cmd.Dir = dir
	r, err := Record(cmd, dir)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip("no tracing here: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// states restores every image, and returns the notes and the content of each once.
func states(t *testing.T, r *Recording, dir string, o Options) (all []string) {
	t.Helper()
	for image := range r.Images(o) {
		if err := image.Restore(); err != nil {
			t.Fatal(err)
		}
		state := strings.Join(image.Notes, " ") + ":"
		err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
			if err != nil || path == dir {
				return err
			}
			content, _ := os.ReadFile(path)
			state += fmt.Sprintf(" %s=%q", strings.TrimPrefix(path, dir+"/"), content)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(all, state) {
			all = append(all, state)
		}
	}
	slices.Sort(all)
	return all
}

func TestImages(t *testing.T) {
	for _, c := range []struct {
		name, script string
		want         []string
	}{
		{"what is not synced is there in part or not", `printf abc > f; echo done >&3`, []string{
			":", `: f=""`, `: f="a"`, `: f="ab"`, `: f="abc"`, `: f="` + `\x00\x00\x00"`,
			"done:", `done: f=""`, `done: f="a"`, `done: f="ab"`, `done: f="abc"`, `done: f="\x00\x00\x00"`,
		}},
		{"a synced file may have no name", `printf a > f; sync f; echo done >&3`, []string{
			":", `: f=""`, `: f="\x00"`, `: f="a"`, "done:", `done: f="a"`,
		}},
		{"a synced directory has the name", `: > f; sync .; echo done >&3; mv f g`, []string{
			":", `: f=""`, `done: f=""`, `done: g=""`,
		}},
		{"what is written over something is there in part or not", `printf aaa > f; sync f; sync .; echo go >&3
			printf bbb | dd of=f conv=notrunc status=none; echo done >&3`, []string{
			":", `: f=""`, `: f="a"`, `: f="aa"`, `: f="aaa"`, `: f="` + `\x00\x00\x00"`, `go: f="aaa"`, `go: f="baa"`, `go: f="bba"`, `go: f="bbb"`,
			`go done: f="aaa"`, `go done: f="baa"`, `go done: f="bba"`, `go done: f="bbb"`,
		}},
		{"a later change may be there without an earlier one", `: > f; mkdir d; echo done >&3`, []string{
			":", `: d=""`, `: d="" f=""`, `: f=""`, "done:", `done: d=""`, `done: d="" f=""`, `done: f=""`,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := Dir(t)
			r := record(t, dir, c.script)
			slices.Sort(c.want)
			if got := states(t, r, dir, Options{Most: 1000}); !slices.Equal(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

func TestASyncThatIsLeftOutHasNoEffect(t *testing.T) {
	dir := Dir(t)
	r := record(t, dir, `: > f; sync .; echo done >&3`)
	if got, want := fmt.Sprint(r.Syncs()), "[{. true  0}]"; got != want {
		t.Errorf("synced %s, want %s", got, want)
	}
	got := states(t, r, dir, Options{Most: 10, Without: func(s Sync) bool { return s.Directory }})
	if !slices.Contains(got, "done:") {
		t.Errorf("%q", got)
	}
}

func TestImagesAreMadeOfTheSameInodes(t *testing.T) {
	dir := Dir(t)
	r := record(t, dir, `mkdir d; : > d/f; sync d; sync .; echo done >&3`)
	inodes := make(map[uint64]bool)
	for image := range r.Images(Options{Most: 100}) {
		if err := image.Restore(); err != nil {
			t.Fatal(err)
		}
		if inode, err := inodeOf(filepath.Join(dir, "d")); err == nil {
			inodes[inode] = true
			if err := Rmdir(dir, filepath.Join(dir, "d")); err == nil == (len(image.disk.dirs[inode]) > 0) {
				t.Errorf("rmdir of a directory with %d entries: %v", len(image.disk.dirs[inode]), err)
			}
		}
	}
	if len(inodes) != 1 {
		t.Errorf("the directory had the inodes %v", inodes)
	}
}

// again records a script that runs on the last of the images.
func again(t *testing.T, dir, script string, images iter.Seq[*Image]) *Recording {
	t.Helper()
	var image *Image
	for image = range images {
	}
	cmd := exec.Command("sh", "-ec", script)
	cmd.Dir = dir
	r, err := image.Record(cmd)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestWhatARecoveryDoesMayBeLostAgain(t *testing.T) {
	const begin, recovery = `: > f; mkdir d; echo begun >&3`, `mv f g; mkdir e; sync .; echo recovered >&3; : > h`
	for _, c := range []struct {
		name   string
		images func(*Recording) iter.Seq[*Image]
		want   []string
	}{
		{"what one loss of power has left lasts", func(r *Recording) iter.Seq[*Image] { return r.Images(Options{Most: 100}) }, []string{
			`begun: d="" e="" f=""`, `begun: d="" e="" g=""`, `begun: d="" f=""`, `begun: d="" g=""`,
			`begun recovered: d="" e="" g=""`, `begun recovered: d="" e="" g="" h=""`,
		}},
		{"what a kill has left may be lost still", (*Recording).Kills, []string{
			"begun:", `begun: d=""`, `begun: d="" e=""`, `begun: d="" e="" f=""`, `begun: d="" e="" g=""`, `begun: d="" f=""`, `begun: d="" g=""`,
			`begun: e=""`, `begun: e="" f=""`, `begun: e="" g=""`, `begun: f=""`, `begun: g=""`,
			`begun recovered: d="" e="" g=""`, `begun recovered: d="" e="" g="" h=""`,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := Dir(t)
			first := record(t, dir, begin)
			second := again(t, dir, recovery, c.images(first))
			slices.Sort(c.want)
			for range 2 { // the images of the first recording do not change those of the second
				if got := states(t, second, dir, Options{Most: 1000}); !slices.Equal(got, c.want) {
					t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
				}
				states(t, first, dir, Options{Most: 1000})
			}
			without := states(t, second, dir, Options{Most: 1000, Without: func(s Sync) bool { return s.Directory }})
			if !slices.Contains(without, `begun recovered: d="" f=""`) || len(second.Syncs()) != 1 || second.Syncs()[0].Number != 0 {
				t.Errorf("without %v: %q", second.Syncs(), without)
			}
		})
	}
}

func TestAProcessThatFailsIsNoRecording(t *testing.T) {
	cmd := exec.Command("sh", "-c", "exit 3")
	if _, err := Record(cmd, Dir(t)); err == nil || !strings.Contains(err.Error(), "status 3") {
		t.Errorf("got %v", err)
	}
}

func TestVariantsOfALongTail(t *testing.T) {
	before, last := bytes.Repeat([]byte("a"), 700), bytes.Repeat([]byte("a"), 2000)
	all := variants(before, [][]byte{last}, rand.New(rand.NewPCG(1, 1)))
	if !bytes.Equal(all[0], before) || !bytes.Equal(all[len(all)-1], last) {
		t.Error("the first is not what was sure, or the last not the last")
	}
	holes := make(map[string]bool)
	for _, v := range all {
		if len(v) < 700 || len(v) > 2000 || bytes.IndexByte(v[:700], 0) >= 0 {
			t.Errorf("%d bytes, %d of the sure ones", len(v), bytes.IndexByte(v, 0))
		}
		if i := bytes.IndexByte(v, 0); i >= 0 {
			holes[fmt.Sprint(i)] = true
		}
	}
	for _, at := range []string{"700", "1024", "1536"} {
		if !holes[at] {
			t.Errorf("no hole begins at %s: %v", at, holes)
		}
	}
}
