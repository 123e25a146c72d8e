package files

import (
	"testing"
	"time"
)

func TestSetOptionsIsForWhatBeginsLater(t *testing.T) {
	s := serve(t, Options{Mode: 0o640})
	fsyncs := 0
	s.sys.before = func(call string) error {
		if call == "fsync" {
			fsyncs++
		}
		return nil
	}
	early := s.begun("/early", "x", UploadOptions{})
	s.SetOptions(0o600, true, time.Nanosecond)
	late := s.begun("/late", "x", UploadOptions{})
	if err := early.Publish(); err != nil || fsyncs != 0 {
		t.Errorf("%v, synced %d times", err, fsyncs)
	}
	if err := late.Publish(); err != nil || fsyncs != 2 {
		t.Errorf("%v, synced %d times", err, fsyncs)
	}
	for name, mode := range map[string]uint32{"/early": 0o640, "/late": 0o600} {
		if i, err := s.Stat(name); err != nil || uint32(i.Mode()) != mode {
			t.Errorf("%s: %v, %v", name, i.Mode(), err)
		}
	}
	// The age counts for every later sweep.
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	die(s.begun("/f", "x", UploadOptions{}))
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := s.temporaries(); len(left) > 0 {
		t.Errorf("%q", left)
	}
	s.SetOptions(0, false, 0)
	if got := s.settings(); got != (settings{0o644, false, time.Hour}) {
		t.Errorf("%+v", got)
	}
}
