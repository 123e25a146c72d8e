package powerloss

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Flags returns options that the flags of a test binary set.
func Flags(most int) *Options {
	o := new(Options)
	flag.Uint64Var(&o.Seed, "power.seed", 1, "seed of the sample of what a loss of power leaves")
	flag.IntVar(&o.Most, "power.most", most, "the number of images of one moment that a test checks at most")
	flag.IntVar(&o.Twice, "power.twice", 1, "the number of starts of each kind that a test records, to check another loss of power")
	return o
}

// The variables for the recorded process: its task and its directory.
const (
	playEnv = "POWERLOSS_PLAY"
	baseEnv = "POWERLOSS_BASE"
)

// Playing returns the task and the directory of a recorded process; "" in other processes.
func Playing() (name, base string) { return os.Getenv(playEnv), os.Getenv(baseEnv) }

// Play is a task of a process until the power fails, and a check of the disk afterwards. The process is the test binary: it runs TestPowerPlay, and
// TestPowerRecovery for the start after it. Both call [Playing].
type Play struct {
	Base string // the recorded directory

	t     *testing.T
	o     Options
	name  string
	check func(base string, notes []string) []string
}

// NewPlay returns a play in an empty directory. check starts on an image and returns its faults.
func NewPlay(t *testing.T, name string, o *Options, check func(base string, notes []string) []string) *Play {
	t.Helper()
	return &Play{Dir(t), t, *o, name, check}
}

// Record runs the task in a process of its own, and records it. It skips the test if processes cannot be traced.
//
// No other test may run: a new process has the locks of all others open for a moment.
func (p *Play) Record() *Recording {
	p.t.Helper()
	return p.record("TestPowerPlay", func(cmd *exec.Cmd) (*Recording, error) { return Record(cmd, p.Base) })
}

// Starts yields recordings of starts on n images at most, which the seed selects. As for Record, no other test may run.
func (p *Play) Starts(images iter.Seq[*Image], n int) iter.Seq[*Recording] {
	return func(yield func(*Recording) bool) {
		all := slices.Collect(images)
		random := rand.New(rand.NewPCG(p.o.Seed, 2))
		for _, i := range random.Perm(len(all))[:min(n, len(all))] {
			if !yield(p.record("TestPowerRecovery", all[i].Record)) {
				return
			}
		}
	}
}

func (p *Play) record(test string, record func(*exec.Cmd) (*Recording, error)) *Recording {
	p.t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+test+"$", "-test.timeout=1m")
	// Without GORACE each process would take a second longer.
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", playEnv+"="+p.name, baseEnv+"="+p.Base)
	out, err := os.Create(filepath.Join(p.t.TempDir(), "out"))
	if err != nil {
		p.t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	r, err := record(cmd)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		if os.Getenv("FTPLOCKD_REQUIRE_CLIENTS") == "1" {
			p.t.Fatal("no tracing here: ", err)
		}
		p.t.Skip("no tracing here: ", err)
	case err != nil:
		_, _ = out.Seek(0, io.SeekStart)
		text, _ := io.ReadAll(out)
		p.t.Fatalf("%v\n%s", err, text)
	}
	return r
}

// Check checks images of the recording until the first fault. It returns the number of images, and the fault.
func (p *Play) Check(r *Recording, most int, without func(Sync) bool) (checked int, fault string) {
	p.t.Helper()
	for image := range r.Images(Options{Seed: p.o.Seed, Most: most, Without: without}) {
		checked++
		if err := image.Restore(); err != nil {
			p.t.Fatal(err)
		}
		if all := p.check(p.Base, image.Notes); len(all) > 0 {
			return checked, fmt.Sprintf("%s\nnotes: %s\n%s", strings.Join(all, "\n"), strings.Join(image.Notes, ", "), image.Lost)
		}
	}
	return checked, ""
}

// Test checks the images of the play, and half as many of some starts after a loss of power or a kill. It runs in parallel with other tests after the
// recordings.
func (p *Play) Test() {
	p.t.Helper()
	first := p.Record()
	recordings := []*Recording{first}
	recordings = slices.AppendSeq(recordings, p.Starts(first.Images(p.o), p.o.Twice))
	recordings = slices.AppendSeq(recordings, p.Starts(first.Kills(), p.o.Twice))
	p.t.Parallel()
	images := 0
	for i, r := range recordings {
		most := p.o.Most
		if i > 0 {
			most /= 2
		}
		checked, fault := p.Check(r, most, nil)
		if images += checked; fault != "" {
			p.t.Errorf("seed %d, recording %d: %s\nsynced: %v", p.o.Seed, i, fault, r.Syncs())
		}
	}
	p.t.Logf("%d images of %d recordings", images, len(recordings))
}
