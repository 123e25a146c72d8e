package files

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestSweepRemovesWhatACrashLeft(t *testing.T) {
	s := serve(t, Options{})
	s.mkdir("/dir")
	s.put("/dir/f", "old")
	s.put("/"+prefix+"xyz", "a user's own")
	s.put("/dir/"+prefix+newID(), "another")
	before := s.hostNames()
	die(s.begun("/dir/f", "half", UploadOptions{}))
	die(s.begun("/top", "half", UploadOptions{}))
	if len(s.temporaries()) != 4 {
		t.Fatalf("%q", s.temporaries())
	}
	s.Close()

	s.open(Options{})
	if list, err := s.ReadDir("/dir"); err != nil || len(list) != 2 {
		t.Errorf("listed before the sweep: %v, %v", list, err)
	}
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := s.hostNames(); strings.Join(after, " ") != strings.Join(before, " ") {
		t.Errorf("%q, want %q", after, before)
	}
	s.want("/dir/f", "old")
	if len(s.records()) > 0 {
		t.Errorf("%q", s.records())
	}
}

func TestSweepLeavesUploadsUnderWay(t *testing.T) {
	s := serve(t, Options{MaxAge: 1})
	u := s.begun("/f", "content", UploadOptions{})
	other, err := Open(s.root, Options{State: s.state, MaxAge: 1}) // another process, as far as records go
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for range 2 {
		if err := errors.Join(s.Sweep(t.Context()), other.Sweep(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	if err := u.Publish(); err != nil {
		t.Fatal(err)
	}
	s.want("/f", "content")
	s.wantClean()
}

func TestLaterSweepsLookAtTheAge(t *testing.T) {
	now := time.Now()
	s := serve(t, Options{MaxAge: time.Hour, Now: func() time.Time { return now }})
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	u := s.begun("/f", "half", UploadOptions{})
	die(u)
	sweep := func(want int) {
		t.Helper()
		if err := s.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(s.temporaries()) != want || len(s.records()) != want {
			t.Errorf("%q, %q", s.temporaries(), s.records())
		}
	}
	now = now.Add(59 * time.Minute)
	sweep(1)
	now = now.Add(2 * time.Minute)
	sweep(0)
}

func TestSweepFindsWhatWasMoved(t *testing.T) {
	s := serve(t, Options{})
	s.mkdir("/a/b")
	s.mkdir("/gone")
	s.mkdir("/z/\xff")
	die(s.begun("/a/b/f", "half", UploadOptions{}))
	die(s.begun("/gone/f", "half", UploadOptions{}))
	s.Close()
	if err := errors.Join(
		os.Rename(s.host("/a/b"), s.host("/z/\xff/moved")),
		os.Mkdir(s.host("/a/b"), 0o755), // another directory of that name
		os.RemoveAll(s.host("/gone")),
	); err != nil {
		t.Fatal(err)
	}
	s.put("/a/b/"+prefix+"mine", "mine")
	s.open(Options{})
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := s.temporaries(); len(got) != 1 || got[0] != "/a/b/"+prefix+"mine" {
		t.Errorf("%q", got)
	}
	if len(s.records()) > 0 {
		t.Errorf("%q", s.records())
	}
}

func TestSweepKeepsTheRecordOfWhatItCouldNotLookFor(t *testing.T) {
	s := serve(t, Options{})
	s.mkdir("/a")
	die(s.begun("/a/f", "half", UploadOptions{}))
	s.Close()
	if err := os.Rename(s.host("/a"), s.host("/b")); err != nil {
		t.Fatal(err)
	}
	s.open(Options{MaxAge: 1})
	n := 0
	s.sys.before = func(call string) error {
		if n++; call == "open" && n > 3 {
			return unix.EACCES
		}
		return nil
	}
	wantIs(t, s.Sweep(t.Context()), unix.EACCES)
	s.sys.before = nil
	if len(s.records()) != 1 {
		t.Fatalf("%q", s.records())
	}
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.wantClean()
}

func TestSweepRemovesRecordsThatWereNeverFinished(t *testing.T) {
	s := serve(t, Options{})
	for _, content := range []string{"", "1 \"/di", "nonsense\n", "- \"/\" 1 2 \"spare of the version before\" \"\"\n"} {
		if err := os.WriteFile(s.state+"/"+newID(), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(s.state+"/something else", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := s.records(); len(got) != 1 || got[0] != "something else" {
		t.Errorf("%q", got)
	}
}

// A Sweep that comes between the making of a record and its lock costs the upload nothing but another record.
func TestASweepAtTheWorstMoment(t *testing.T) {
	s := serve(t, Options{})
	swept := 0
	s.sys.before = func(call string) error {
		names := s.records()
		if call == "create" && len(names) != 1 {
			t.Errorf("the temporary is made with %d records", len(names))
		}
		if call == "stat" && len(names) == 1 && swept == 0 {
			if i, err := os.Stat(s.state + "/" + names[0]); err == nil && i.Size() == 0 {
				swept++
				return os.Remove(s.state + "/" + names[0])
			}
		}
		return nil
	}
	s.mustUpload("/f", "content", UploadOptions{})
	if swept != 1 {
		t.Error("the moment never came")
	}
	s.sys.before = nil
	s.want("/f", "content")
	s.wantClean()
}

func TestRecords(t *testing.T) {
	var all [256]byte
	for i := range all {
		all[i] = byte(i)
	}
	for _, r := range []*record{
		{dir: "/", base: "f"},
		{dir: "/a b\"\n", base: string(all[:]), dev: 1<<64 - 1, inode: 3},
	} {
		r.id = newID()
		line := string(r.line())
		ofTheVersionBefore := strings.TrimSuffix(line, "\n") + " \"\"\n"
		for _, content := range []string{line, ofTheVersionBefore, ofTheVersionBefore + strings.TrimSuffix(line, "\n") + " \"owner\"\n"} {
			if got, ok := parseRecord(r.id, []byte(content)); !ok || *got != *r {
				t.Errorf("%q: %+v, %v, want %+v", content, got, ok, r)
			}
		}
		for end := range line {
			if got, ok := parseRecord(r.id, []byte(line[:end])); ok {
				t.Errorf("%q is whole: %+v", line[:end], got)
			}
		}
	}
	if id := newID(); !isID(id) || isID(id+"x") || isID(strings.ToUpper(id)) || id == newID() {
		t.Error(id)
	}
}

// Should the name of a temporary be taken, against all odds, the file that has it is not touched.
func TestATakenNameIsNotWrittenOver(t *testing.T) {
	s := serve(t, Options{})
	var name string
	s.sys.before = func(call string) error {
		if call == "create" {
			name = "/" + prefix + s.records()[0]
			s.put(name, "mine")
		}
		return nil
	}
	wantIs(t, s.upload("/f", "content", UploadOptions{}), os.ErrExist)
	s.sys.before = nil
	s.want(name, "mine")
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.want(name, "mine")
	if len(s.records()) > 0 {
		t.Errorf("%q", s.records())
	}
}
