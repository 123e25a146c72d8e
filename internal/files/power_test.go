package files

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/internal/powerloss"
)

var power = powerloss.Flags(16)

// contents are the contents of files by their FTP paths; "": there is no file.
type contents map[string]string

// powerStep makes one change. When it returns, the change survives a loss of power.
type powerStep struct {
	what  string
	after contents // the files that it changes
	do    func(*Tree) error
}

// powerPlay is a sequence of changes until the power fails.
type powerPlay struct {
	name   string
	before contents
	steps  []powerStep
}

// text returns a text of several sectors whose lines are numbered.
func text(word string) string {
	var b strings.Builder
	for i := range 60 {
		fmt.Fprintf(&b, "%s, line %02d of 59\n", word, i)
	}
	return b.String()
}

func upload(name, content string, o UploadOptions) powerStep {
	after := content
	if o.Append {
		after = text("old") + content
	}
	return powerStep{"upload " + name, contents{name: after}, func(t *Tree) error { return (&served{Tree: t}).upload(name, content, o) }}
}

var powerPlays = []powerPlay{
	{name: "a new file", steps: []powerStep{upload("/f", text("new"), UploadOptions{})}},
	{name: "a file that must not be there", steps: []powerStep{upload("/f", text("new"), UploadOptions{New: true})}},
	{name: "a file is replaced twice", before: contents{"/a/f": text("old")}, steps: []powerStep{
		upload("/a/f", text("newer"), UploadOptions{}), upload("/a/f", text("newest"), UploadOptions{})}},
	{name: "append", before: contents{"/f": text("old")}, steps: []powerStep{upload("/f", text("new"), UploadOptions{Append: true})}},
	{name: "a file in a new directory", steps: []powerStep{{"upload /new/dir/f", contents{"/new/dir/f": text("new")}, func(t *Tree) error {
		if err := errors.Join(t.Mkdir("/new", 0o755), t.MakeDurable("/new"), t.Mkdir("/new/dir", 0o755), t.MakeDurable("/new/dir")); err != nil {
			return err
		}
		return upload("/new/dir/f", text("new"), UploadOptions{}).do(t)
	}}}},
	{name: "a file is renamed", before: contents{"/a/f": text("old"), "/b/t": text("new")}, steps: []powerStep{{"rename", contents{"/a/f": text("new"), "/b/t": ""}, func(t *Tree) error {
		return errors.Join(t.Rename("/b/t", "/a/f"), t.MakeDurable("/a/f", "/b/t"))
	}}}},
	{name: "a tree in new directories", before: contents{"/a/f": text("old")}, steps: []powerStep{{"move", contents{"/x/y/z/f": text("old"), "/a/f": ""}, func(t *Tree) error {
		root := t.root.Name()
		below, err := Open(filepath.Join(root, "x/y/z"), Options{State: filepath.Join(filepath.Dir(root), "state/below"), Durable: true})
		if err != nil {
			return err
		}
		return errors.Join(os.Rename(filepath.Join(root, "a/f"), filepath.Join(root, "x/y/z/f")), below.MakeDurable("/f"), t.MakeDurable("/a/f"), below.Close())
	}}}},
	{name: "a file is removed", before: contents{"/a/f": text("old")}, steps: []powerStep{{"remove", contents{"/a/f": ""}, func(t *Tree) error {
		return errors.Join(t.RemoveFile("/a/f", nil), t.MakeDurable("/a/f"))
	}}}},
}

func powerPlayNamed(name string) powerPlay {
	return powerPlays[slices.IndexFunc(powerPlays, func(p powerPlay) bool { return p.name == name })]
}

func openPower(base string) (*Tree, error) {
	return Open(filepath.Join(base, "root"), Options{State: filepath.Join(base, "state", "uploads"), Durable: true})
}

// TestPowerPlay runs a play in the recorded process.
func TestPowerPlay(t *testing.T) {
	name, base := powerloss.Playing()
	if name == "" {
		return // it only runs as a part of other tests
	}
	tree, err := openPower(base)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range powerPlayNamed(name).steps {
		if err := step.say(tree); err != nil {
			t.Fatal(err)
		}
	}
}

// say makes the change, and reports it before and after.
func (s powerStep) say(tree *Tree) error {
	if err := powerloss.Note("may " + s.what); err != nil {
		return err
	}
	if err := s.do(tree); err != nil {
		return err
	}
	return powerloss.Note("did " + s.what)
}

// complaints opens the tree that a loss of power left, and returns its faults.
func (p powerPlay) complaints(base string, said []string) (all []string) {
	states := p.states(said)
	tree, err := recoverPower(base)
	if err != nil {
		return []string{"it does not start: " + err.Error()}
	}
	defer tree.Close()
	found, err := hostContents(filepath.Join(base, "root"), slices.Contains(said, starting))
	if err != nil {
		return []string{err.Error()}
	}
	if !slices.ContainsFunc(states, func(s contents) bool { return maps.Equal(s, found) }) {
		all = append(all, fmt.Sprintf("there is %.40q, want one of %.40q", found, states))
	}
	return all
}

// states returns the permitted contents after these reports: a step that was only begun is done or not.
func (p powerPlay) states(said []string) []contents {
	states := []contents{{}}
	maps.Copy(states[0], p.before)
	done := func(step powerStep) (all []contents) {
		for _, state := range states {
			next := maps.Clone(state)
			maps.Copy(next, step.after)
			maps.DeleteFunc(next, func(_, content string) bool { return content == "" })
			all = append(all, next)
		}
		return all
	}
	steps := p.steps
	for i, text := range said {
		switch {
		case text == recovered:
			steps = []powerStep{late}
		case strings.HasPrefix(text, "may ") && slices.Contains(said[i:], "did "+steps[0].what):
			states = done(steps[0])
			steps = steps[1:]
		case strings.HasPrefix(text, "may "):
			states = append(states, done(steps[0])...)
			steps = steps[1:]
		}
	}
	return states
}

// hostContents reads all files. A temporary file may be left if the power was lost twice within seconds.
func hostContents(root string, twice bool) (contents, error) {
	found := make(contents)
	err := filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() || twice && strings.HasPrefix(e.Name(), prefix) {
			return err
		}
		content, err := os.ReadFile(path)
		found[strings.TrimPrefix(path, root)] = string(content)
		return err
	})
	return found, err
}

// begin returns the play in a new directory.
func (p powerPlay) begin(t *testing.T) *powerloss.Play {
	t.Helper()
	play := powerloss.NewPlay(t, p.name, power, p.complaints)
	for _, dir := range []string{"root/a", "root/b", "state"} {
		if err := os.MkdirAll(filepath.Join(play.Base, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range p.before {
		if err := os.WriteFile(filepath.Join(play.Base, "root", name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return play
}

// The power is lost during the play, and again during the next start.
func TestAcknowledgedFilesSurviveALossOfPower(t *testing.T) {
	for _, p := range powerPlays {
		t.Run(p.name, func(t *testing.T) { p.begin(t).Test() })
	}
}
