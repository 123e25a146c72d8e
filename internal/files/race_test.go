package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// A directory and a link out of the tree swap their names, in one step each time, while operations go
// through it. No operation reaches a file outside.
func TestALinkSwappedInTheMiddleNeverLeadsOut(t *testing.T) {
	s := serve(t, Options{})
	outside := filepath.Join(filepath.Dir(s.root), "outside")
	if err := os.MkdirAll(filepath.Join(outside, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	const secret = "nobody sees this"
	bait := filepath.Join(outside, "bait")
	if err := os.WriteFile(bait, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(bait)
	if err != nil {
		t.Fatal(err)
	}
	s.mkdir("/way/sub")
	s.put("/way/bait", "inside")
	s.link("../outside", "/other")
	s.put("/mine", "mine")

	stop := make(chan struct{})
	var swapper sync.WaitGroup
	swapper.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			err := unix.Renameat2(unix.AT_FDCWD, s.host("/way"), unix.AT_FDCWD, s.host("/other"), unix.RENAME_EXCHANGE)
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	reached := 0
	for i := range 1500 {
		if raceOnce(t, s, i) {
			reached++
		}
	}
	close(stop)
	swapper.Wait()
	if reached == 0 || reached == 1500 {
		t.Errorf("%d of 1500 went through: the swap never came in between", reached)
	}
	after, err := os.Stat(bait)
	if err != nil || after.Mode() != before.Mode() || after.ModTime() != before.ModTime() {
		t.Errorf("what is outside has changed: %v, %v", after, err)
	}
	if b, err := os.ReadFile(bait); err != nil || string(b) != secret {
		t.Errorf("what is outside has changed: %q, %v", b, err)
	}
	if list, err := os.ReadDir(outside); err != nil || len(list) != 2 {
		t.Errorf("what is outside has changed: %v, %v", list, err)
	}
}

// raceOnce runs one operation and reports whether it succeeded.
func raceOnce(t *testing.T, s *served, i int) bool {
	name := fmt.Sprint("/way/new", i)
	var err error
	switch i % 9 {
	case 0:
		err = s.upload(name, "x", UploadOptions{})
	case 1:
		err = s.Mkdir(name, 0o755)
	case 2:
		if err = s.Mkdir(name, 0o755); err == nil {
			s.RemoveDir(name)
		}
	case 3:
		err = s.Chmod("/way/bait", 0o666)
	case 4:
		err = s.Chtimes("/way/bait", unixEpoch, unixEpoch)
	case 5:
		d, e := s.Open("/way/bait")
		if err = e; err == nil {
			b := make([]byte, 64)
			n, _ := d.Read(b)
			d.Close()
			if string(b[:n]) != "inside" {
				t.Errorf("read %q", b[:n])
			}
		}
	case 6:
		err = s.upload("/way/bait", "inside", UploadOptions{})
	case 7:
		if err = s.Rename("/mine", name); err == nil {
			s.Rename(name, "/mine")
		}
		s.put("/mine", "mine")
	case 8:
		got, e := s.Resolve(name)
		if err = e; err == nil && got != name {
			t.Errorf("resolved to %q", got)
		}
	}
	if err != nil && !errors.Is(err, ErrEscapes) && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("operation %d: %v", i%9, err)
	}
	return err == nil
}
