package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
	s.put("/dir/"+prefix+newID()+"-1", "another")
	before := s.hostNames()
	die(s.begun("/dir/f", "half", UploadOptions{}))
	die(s.begun("/dir/g", "half", UploadOptions{}))
	die(s.begun("/top", "half", UploadOptions{}))
	if len(s.temporaries()) != 5 {
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
	s := serve(t, Options{})
	u := s.begun("/f", "content", UploadOptions{})
	for range 2 {
		if err := s.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := u.Publish(); err != nil {
		t.Fatal(err)
	}
	s.want("/f", "content")
	s.wantClean()
}

// A file in a directory that is not recorded was not made by that start, whatever it is called.
func TestSweepLooksInRecordedDirectoriesOnly(t *testing.T) {
	s := serve(t, Options{})
	s.mkdir("/dir")
	die(s.begun("/f", "half", UploadOptions{}))
	mine := "/dir/" + prefix + s.start + "-1"
	s.put(mine, "mine")
	s.Close()
	s.open(Options{})
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := s.temporaries(); len(got) != 1 || got[0] != mine {
		t.Errorf("%q", got)
	}
}

func TestSweepFindsWhatWasMoved(t *testing.T) {
	now := time.Now()
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
	s.open(Options{Now: func() time.Time { return now }})
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

// One directory that cannot be read does not keep the sweep from the others, and is not forgotten.
func TestSweepGoesOnPastADirectoryThatItCannotRead(t *testing.T) {
	s := serve(t, Options{})
	for _, dir := range []string{"/a", "/b", "/c"} {
		s.mkdir(dir)
		die(s.begun(dir+"/f", "half", UploadOptions{}))
	}
	s.Close()
	s.open(Options{})
	opened := 0
	s.before = func(call string) error {
		if call == "open" {
			if opened++; opened == 2 {
				return unix.EACCES
			}
		}
		return nil
	}
	wantIs(t, s.Sweep(t.Context()), unix.EACCES)
	s.before = nil
	if left := s.temporaries(); len(left) != 1 || filepath.Dir(left[0]) != "/b" || len(s.records()) != 1 {
		t.Errorf("%q, %q", left, s.records())
	}
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.wantClean()
}

// So it is in a search of the whole tree, which is made again an hour later.
func TestASearchGoesOnPastADirectoryThatItCannotRead(t *testing.T) {
	now := time.Now()
	s := serve(t, Options{})
	for _, dir := range []string{"/a", "/b", "/c"} {
		s.mkdir("/in" + dir)
		die(s.begun("/in"+dir+"/f", "half", UploadOptions{}))
	}
	s.Close()
	if err := os.Rename(s.host("/in"), s.host("/moved")); err != nil {
		t.Fatal(err)
	}
	s.open(Options{Now: func() time.Time { return now }})
	opened := 0
	s.before = func(call string) error {
		if call == "open" {
			if opened++; opened == 7 { // three recorded, the root, /moved, the first and the second in it
				return unix.EACCES
			}
		}
		return nil
	}
	wantIs(t, s.Sweep(t.Context()), unix.EACCES)
	s.before = nil
	sweep := func(want int) {
		t.Helper()
		if err := s.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(s.temporaries()) != want || len(s.records()) != want {
			t.Errorf("%q, %q", s.temporaries(), s.records())
		}
	}
	now = now.Add(searchEvery - time.Second)
	sweep(1)
	now = now.Add(time.Second)
	sweep(0)
	s.wantClean()
}

// The version before had a record for each upload.
func TestSweepRemovesWhatTheVersionBeforeLeft(t *testing.T) {
	s := serve(t, Options{})
	s.mkdir("/a b")
	in, err := s.Lstat("/a b")
	if err != nil {
		t.Fatal(err)
	}
	d := in.Sys().(*details)
	inode, _ := d.Identity()
	s.Close()
	id, spare := newID(), newID()
	s.put("/a b/"+prefix+id, "half")
	for name, text := range map[string]string{
		id:      fmt.Sprintf("1 %q %d %d %q\n", "/a b", d.Device(), inode, "f\n"),
		spare:   "- \"/\" 1 2 \"spare\" \"\"\n",
		newID(): "",
		newID(): "1 \"/di",
	} {
		if err := os.WriteFile(filepath.Join(s.state, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(s.state, "something else"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.open(Options{})
	if list, err := s.ReadDir("/a b"); err != nil || len(list) != 0 {
		t.Errorf("listed before the sweep: %v, %v", list, err)
	}
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.wantClean()
	if left, err := os.ReadDir(s.state); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
}

func TestRecords(t *testing.T) {
	var all [256]byte
	for i := range all {
		all[i] = byte(i)
	}
	for _, r := range []recorded{{dir: "/"}, {"/a b\"\n" + string(all[:]), 1<<64 - 1, 3}} {
		text := string(r.line())
		for _, line := range []string{text[1:], "1" + text[2:len(text)-1] + " \"f\"\n", "1" + text[2:len(text)-1] + " \"f\" \"owner\"\n"} {
			if got, ok := parseRecord(line); !ok || got != r {
				t.Errorf("%q: %+v, %v, want %+v", line, got, ok, r)
			}
		}
	}
	if id := newID(); !isID(id) || isID(id+"x") || isID(strings.ToUpper(id)) || id == newID() {
		t.Error(id)
	}
}

// What a full disk has cut off is followed by records that count.
func TestARecordAfterOneThatWasCutOff(t *testing.T) {
	s := serve(t, Options{})
	s.mkdir("/dir")
	s.mustUpload("/f", "x", UploadOptions{})
	if _, err := s.Tree.records.file.WriteString("\n2 \"/di"); err != nil {
		t.Fatal(err)
	}
	die(s.begun("/dir/f", "half", UploadOptions{}))
	s.Close()
	s.open(Options{})
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.wantClean()
}

// The record does not grow with all the directories that there ever were.
func TestTheRecordIsBounded(t *testing.T) {
	s := serve(t, Options{})
	s.mkdir("/early")
	s.mkdir("/d")
	die(s.begun("/early/f", "half", UploadOptions{})) // it counts as under way
	for i := range maxRecords + 5 {
		if err := s.record(recorded{fmt.Sprint("/d/", i), 1, uint64(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.Tree.records.known); n > 10 {
		t.Errorf("%d directories are recorded", n)
	}
	s.Close()
	s.open(Options{})
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.wantClean()
}

// Should the name of a temporary file be taken, against all odds, the file that has it is not touched.
func TestATakenNameIsNotWrittenOver(t *testing.T) {
	s := serve(t, Options{})
	name := "/" + prefix + s.start + "-1"
	s.put(name, "mine")
	wantIs(t, s.upload("/f", "content", UploadOptions{}), os.ErrExist)
	s.want(name, "mine")
	s.mustUpload("/f", "content", UploadOptions{})
}

func TestACloseWithNothingLeftLeavesNoRecord(t *testing.T) {
	s := serve(t, Options{})
	s.mustUpload("/f", "content", UploadOptions{})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(s.state); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
}
