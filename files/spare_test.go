package files

import (
	"os"
	"testing"
)

// recordFiles is how many files there are for records, those that wait for an upload included.
func (s *served) recordFiles() int {
	s.t.Helper()
	list, err := os.ReadDir(s.state)
	if err != nil {
		s.t.Fatal(err)
	}
	return len(list)
}

func TestRecordsAreUsedAgain(t *testing.T) {
	s := serve(t, Options{})
	for range 3 {
		s.mustUpload("/f", "x", UploadOptions{})
	}
	if n := s.recordFiles(); n != 1 {
		t.Errorf("%d files of records after uploads one after the other", n)
	}
	var all []*Upload
	for range 2 * maxSpare {
		all = append(all, s.begun("/f", "x", UploadOptions{}))
	}
	for _, u := range all {
		if err := u.Discard(); err != nil {
			t.Error(err)
		}
	}
	if n := s.recordFiles(); n != maxSpare {
		t.Errorf("%d files of records wait, want %d", n, maxSpare)
	}
	u := s.begun("/f", "x", UploadOptions{})
	s.Close()
	if n := s.recordFiles(); n != 1 { // that of the upload under way
		t.Errorf("%d files of records after Close", n)
	}
	if err := u.Discard(); err != nil {
		t.Error(err)
	}
}

// A shorter line leaves nothing of the longer one before it, which would hide it from a Sweep.
func TestACrashWithARecordThatWasUsedBefore(t *testing.T) {
	s := serve(t, Options{})
	s.mkdir("/directory")
	s.mustUpload("/directory/with a long name", "x", UploadOptions{})
	die(s.begun("/f", "half", UploadOptions{}))
	if len(s.temporaries()) != 1 || s.recordFiles() != 1 {
		t.Fatalf("%q, %d records", s.temporaries(), s.recordFiles())
	}
	s.Close()
	s.open(Options{})
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.wantClean()
}

func TestTheSpareRecordsOfADeadProcessAreRemoved(t *testing.T) {
	s := serve(t, Options{})
	s.mustUpload("/f", "x", UploadOptions{})
	s.spares.take().file.Close()
	s.open(Options{})
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := s.recordFiles(); n != 0 {
		t.Errorf("%d files of records", n)
	}
	s.want("/f", "x")
	s.wantClean()
}

// Its file is gone, so nothing that is written into it would be found after a crash.
func TestASpareRecordThatSomebodyRemovedIsNotUsed(t *testing.T) {
	s := serve(t, Options{})
	s.mustUpload("/f", "x", UploadOptions{})
	list, err := os.ReadDir(s.state)
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	if err := os.Remove(s.state + "/" + list[0].Name()); err != nil {
		t.Fatal(err)
	}
	die(s.begun("/f", "half", UploadOptions{}))
	s.Close()
	s.open(Options{})
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.wantClean()
}

// One mark could not say that none of several lines counts.
func TestARecordThatWasKeptIsNotUsedAgain(t *testing.T) {
	s := serve(t, Options{})
	if err := s.begun("/f", "0123", UploadOptions{}).Keep("me"); err != nil {
		t.Fatal(err)
	}
	s.mustUpload("/f", "4", UploadOptions{HasOffset: true, Offset: 4, Owner: "me"})
	s.want("/f", "01234")
	if n := s.recordFiles(); n != 0 {
		t.Errorf("%d files of records", n)
	}
	s.wantClean()
}

// The name of a record that waits is as hidden as it is while an upload has it.
func TestTheNameOfASpareRecordIsRefused(t *testing.T) {
	s := serve(t, Options{})
	s.mustUpload("/f", "x", UploadOptions{})
	r := s.spares.take()
	defer s.spares.put(r)
	wantIs(t, s.upload("/"+r.temporary(), "x", UploadOptions{}), ErrReserved)
}
