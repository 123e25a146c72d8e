package powerloss

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// RecordTest records one test of the running test binary, in a process of its own with these variables in its environment. It
// skips the calling test where processes cannot be traced.
func RecordTest(t testing.TB, root, name string, env ...string) *Recording {
	t.Helper()
	return recordTest(t, name, env, func(cmd *exec.Cmd) (*Recording, error) { return Record(cmd, root, time.Minute) })
}

// RecordTest is [RecordTest] of what becomes of the image, see [Image.Record].
func (i *Image) RecordTest(t testing.TB, name string, env ...string) *Recording {
	t.Helper()
	return recordTest(t, name, env, func(cmd *exec.Cmd) (*Recording, error) { return i.Record(cmd, time.Minute) })
}

// RecordTests is Image.RecordTest of a [Sample] of the images.
func RecordTests(t testing.TB, images iter.Seq[*Image], n int, seed uint64, name string, env ...string) (all []*Recording) {
	t.Helper()
	for _, image := range Sample(images, n, seed) {
		all = append(all, image.RecordTest(t, name, env...))
	}
	return all
}

func recordTest(t testing.TB, name string, env []string, record func(*exec.Cmd) (*Recording, error)) *Recording {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+name+"$", "-test.timeout=1m")
	cmd.Env = append(append(os.Environ(), "GORACE=atexit_sleep_ms=0"), env...) // or each would end a second late
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	r, err := record(cmd)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		t.Skip("no tracing here: ", err)
	case err != nil:
		_, _ = out.Seek(0, io.SeekStart)
		text, _ := io.ReadAll(out)
		t.Fatalf("%v\n%s", err, text)
	}
	return r
}

// Try restores the images one by one and asks what is wrong with each, up to the first of which anything is. It returns how
// many there were, and what was wrong.
func (r *Recording) Try(t testing.TB, o Options, wrong func(said []string) []string) (looked int, complaint string) {
	t.Helper()
	for image := range r.Images(o) {
		looked++
		if err := image.Restore(); err != nil {
			t.Fatal(err)
		}
		if all := wrong(image.Said); len(all) > 0 {
			return looked, fmt.Sprintf("%s\nsaid: %s\n%s", strings.Join(all, "\n"), strings.Join(image.Said, ", "), image.Lost)
		}
	}
	return looked, ""
}
