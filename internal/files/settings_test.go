package files

import "testing"

func TestSetOptionsAppliesToLaterUploads(t *testing.T) {
	s := serve(t, Options{Mode: 0o640})
	fsyncs := 0
	s.beforeCall = func(call string) error {
		if call == "fsync" {
			fsyncs++
		}
		return nil
	}
	early := s.begun("/early", "x", UploadOptions{})
	s.SetOptions(0o600, true)
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
}
