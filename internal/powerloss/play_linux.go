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
	flag.IntVar(&o.Most, "power.most", most, "how many of the states are tried that a loss of power can leave at one moment")
	flag.IntVar(&o.Twice, "power.twice", 1, "how many starts of each kind are recorded, and lose power again")
	return o
}

// What the process does whose writes are recorded, and where.
const (
	playEnv = "POWERLOSS_PLAY"
	baseEnv = "POWERLOSS_BASE"
)

// Playing returns what the process that is recorded does, below which directory; "" in any other process.
func Playing() (name, base string) { return os.Getenv(playEnv), os.Getenv(baseEnv) }

// Play is what a process does until the power fails, and what is to be there afterwards. The process is the test binary: it runs
// TestPowerPlay, and TestPowerRecovery for a start that follows. Both ask [Playing] what to do.
type Play struct {
	Base string // the directory that is recorded

	t     *testing.T
	o     Options
	name  string
	wrong func(base string, said []string) []string
}

// NewPlay returns a play in an empty directory. wrong starts on an image and returns what is wrong with it.
func NewPlay(t *testing.T, name string, o *Options, wrong func(base string, said []string) []string) *Play {
	t.Helper()
	return &Play{Dir(t), t, *o, name, wrong}
}

// Record has a process of its own play, and records it. It skips the test where processes cannot be traced.
//
// No test may be running in parallel: a process that is being started has the locks of all others open for a moment.
func (p *Play) Record() *Recording {
	p.t.Helper()
	return p.record("TestPowerPlay", func(cmd *exec.Cmd) (*Recording, error) { return Record(cmd, p.Base) })
}

// Starts yields what a start does on some of the images, n at most, whichever the seed says. As for Record no test may be running in parallel.
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
	// Without GORACE each would end a second late.
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

// Try looks at images of the recording, so many for each moment, without syncs that have no effect, up to the first that anything is
// wrong with. It returns how many there were, and what was wrong.
func (p *Play) Try(r *Recording, most int, without func(Sync) bool) (looked int, wrong string) {
	p.t.Helper()
	for image := range r.Images(Options{Seed: p.o.Seed, Most: most, Without: without}) {
		looked++
		if err := image.Restore(); err != nil {
			p.t.Fatal(err)
		}
		if all := p.wrong(p.Base, image.Said); len(all) > 0 {
			return looked, fmt.Sprintf("%s\nsaid: %s\n%s", strings.Join(all, "\n"), strings.Join(image.Said, ", "), image.Lost)
		}
	}
	return looked, ""
}

// Test tries what a loss of power leaves of the play, and what another one leaves of some starts that follow it, or a kill: of those half
// as many images. It runs parallel to other tests from the moment when all is recorded.
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
		looked, wrong := p.Try(r, most, nil)
		if images += looked; wrong != "" {
			p.t.Errorf("seed %d, recording %d: %s\nsynced: %v", p.o.Seed, i, wrong, r.Syncs())
		}
	}
	p.t.Logf("%d images of %d recordings", images, len(recordings))
}
