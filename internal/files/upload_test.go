package files

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestAnUploadKeepsTheMode(t *testing.T) {
	old := unix.Umask(0o027)
	defer unix.Umask(old)
	for _, c := range []struct {
		what     string
		existing fs.FileMode
		option   fs.FileMode
		want     fs.FileMode
	}{
		{"new", 0, 0, 0o640},
		{"new, configured", 0, 0o666, 0o640},
		{"new, configured narrow", 0, 0o600, 0o600},
		{"existing, narrow", 0o400, 0, 0o400},
		{"existing, wide", 0o666, 0, 0o666},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := serve(t, Options{Mode: c.option})
			if c.existing != 0 {
				s.put("/f", "old")
				if err := os.Chmod(s.host("/f"), c.existing); err != nil {
					t.Fatal(err)
				}
			}
			u := s.begun("/f", "new", UploadOptions{})
			during, err := os.Stat(s.host("/" + u.temp))
			if err != nil || during.Mode().Perm()&^c.want != 0 {
				t.Errorf("during the upload: %v, %v", during.Mode(), err)
			}
			if err := u.Publish(); err != nil {
				t.Fatal(err)
			}
			if i, err := s.Stat("/f"); err != nil || i.Mode() != c.want {
				t.Errorf("%v, %v, want %v", i.Mode(), err, c.want)
			}
		})
	}
}

func TestAnUploadKeepsTheOwner(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give files away")
	}
	s := serve(t, Options{})
	s.put("/f", "old")
	if err := errors.Join(os.Chown(s.host("/f"), 1234, 2345), os.Chmod(s.host("/f"), 0o640)); err != nil {
		t.Fatal(err)
	}
	s.mustUpload("/f", "new", UploadOptions{})
	i, err := s.Lstat("/f")
	if err != nil {
		t.Fatal(err)
	}
	if d := i.(*info).details; d.user != 1234 || d.group != 2345 || i.Mode() != 0o640 {
		t.Errorf("%d:%d %v", i.(*info).details.user, i.(*info).details.group, i.Mode())
	}
}

func TestANewFileNeverReplaces(t *testing.T) {
	for _, rename := range []error{nil, unix.EINVAL} { // without RENAME_NOREPLACE by a link
		s := serve(t, Options{})
		for _, taken := range []bool{true, false} {
			u := s.begun("/f", "new", UploadOptions{New: true})
			if taken {
				s.put("/f", "other")
			}
			s.beforeCall = onceFor("rename", rename)
			if err := u.Publish(); errors.Is(err, fs.ErrExist) != taken {
				t.Errorf("%v", err)
			}
			s.want("/f", map[bool]string{true: "other", false: "new"}[taken])
			s.wantClean()
			if err := os.Remove(s.host("/f")); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A directory above the target is renamed during the upload. Another directory may have its name by then.
func TestAnUploadDoesNotFollowItsDirectory(t *testing.T) {
	for _, again := range []bool{false, true} {
		s := serve(t, Options{})
		s.mkdir("/a/b")
		u := s.begun("/a/b/f", "new", UploadOptions{})
		if err := s.Rename("/a", "/c"); err != nil {
			t.Fatal(err)
		}
		if again {
			s.mkdir("/a/b")
		}
		wantIs(t, u.Publish(), ErrMoved)
		if names := s.hostNames(); slices.ContainsFunc(names, func(n string) bool { return strings.HasSuffix(n, "f") }) {
			t.Errorf("published: %q", names)
		}
		s.wantClean()
	}
}

// Place, for which other clients wait, syncs nothing.
func TestPlaceWaitsForNoDisk(t *testing.T) {
	s := serve(t, Options{Durable: true})
	u := s.begun("/f", "content", UploadOptions{})
	if err := u.Sync(); err != nil {
		t.Fatal(err)
	}
	var calls []string
	s.beforeCall = func(call string) error {
		calls = append(calls, call)
		return nil
	}
	if err := u.Place(); err != nil || !slices.Equal(calls, []string{"rename"}) {
		t.Errorf("%q, %v", calls, err)
	}
	s.want("/f", "content")
	if err := u.Finish(); err != nil || !slices.Contains(calls, "fsync") {
		t.Errorf("%q, %v", calls, err)
	}
	wantIs(t, u.Finish(), ErrDone)
	s.wantClean()
}

func TestAnUploadIsNotUndoneByOneThatBeganWithTheOldContent(t *testing.T) {
	s := serve(t, Options{})
	s.mustUpload("/f", "0", UploadOptions{})
	added := UploadOptions{Append: true}
	first, late, resumed := s.begun("/f", "a", added), s.begun("/f", "b", added), s.begun("/f", "c", UploadOptions{Offset: 1})
	new1, new2 := s.begun("/new", "1", added), s.begun("/new", "2", added)
	other := s.begun("/g", "x", added)
	for _, u := range []*Upload{first, new1, other} {
		if err := u.Publish(); err != nil {
			t.Error(err)
		}
	}
	for _, u := range []*Upload{late, resumed, new2} {
		if err := u.Publish(); !errors.Is(err, ErrChanged) {
			t.Errorf("%v", err)
		}
	}
	s.want("/f", "0a")
	s.want("/new", "1")
	s.mustUpload("/f", "b", added) // it begins with the content of both
	s.want("/f", "0ab")
}

// nextTick waits until the clock of the file system has advanced.
func (s *served) nextTick() {
	s.t.Helper()
	var first time.Time
	for {
		s.put("/tick", "")
		i, err := os.Stat(s.host("/tick"))
		if err != nil {
			s.t.Fatal(err)
		}
		if first.IsZero() {
			first = i.ModTime()
		} else if i.ModTime().After(first) {
			return
		}
	}
}

// APPE, and STOR after REST, never undo a change of the old content.
func TestAppendedContentDoesNotUndoAnotherChange(t *testing.T) {
	for _, c := range []struct {
		what   string
		change func(s *served) error
		want   string // the content of /f; "": the file does not exist
	}{
		{"renamed", func(s *served) error { return s.Rename("/f", "/g") }, ""},
		{"replaced by a rename", func(s *served) error { return s.Rename("/other", "/f") }, "other"},
		{"removed", func(s *served) error { return s.RemoveFile("/f", nil) }, ""},
		{"removed by the host", func(s *served) error { return os.Remove(s.host("/f")) }, ""},
		{"written by the host", func(s *served) error { return os.WriteFile(s.host("/f"), []byte("abcdefgh"), 0o644) }, "abcdefgh"},
		{"written by the host, same size", func(s *served) error { return os.WriteFile(s.host("/f"), []byte("ABC"), 0o644) }, "ABC"},
		{"written by the host, same size and time", func(s *served) error {
			before, err := os.Stat(s.host("/f"))
			return errors.Join(err, os.WriteFile(s.host("/f"), []byte("ABC"), 0o644), os.Chtimes(s.host("/f"), time.Time{}, before.ModTime()))
		}, "ABC"},
		{"made a link", func(s *served) error { return errors.Join(os.Remove(s.host("/f")), os.Symlink("other", s.host("/f"))) }, "other"},
	} {
		for _, o := range []UploadOptions{{Append: true}, {Offset: 3}} {
			t.Run(c.what, func(t *testing.T) {
				s := serve(t, Options{})
				s.put("/f", "abc")
				s.put("/other", "other")
				u := s.begun("/f", "d", o)
				s.nextTick()
				if err := c.change(s); err != nil {
					t.Fatal(err)
				}
				wantIs(t, u.Publish(), ErrChanged)
				if c.want != "" {
					s.want("/f", c.want)
				} else if _, err := os.Lstat(s.host("/f")); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("the file exists again: %v", err)
				}
				s.wantClean()
			})
		}
	}
}

// No other publication of the name comes between the check of the old content and the publication.
func TestConcurrentAppendsLoseNothing(t *testing.T) {
	s := serve(t, Options{})
	for round := range 50 {
		s.put("/f", "")
		var published atomic.Int64
		var all []*Upload
		for range 4 {
			all = append(all, s.begun("/f", "x", UploadOptions{Append: true}))
		}
		var wg sync.WaitGroup
		for _, u := range all {
			wg.Go(func() {
				if u.Publish() == nil {
					published.Add(1)
				}
			})
		}
		wg.Wait()
		if published.Load() != 1 {
			t.Fatalf("round %d: %d uploads were published, want 1", round, published.Load())
		}
	}
	s.wantClean()
}

func TestAppendThroughALinkReplacesTheLink(t *testing.T) {
	s := serve(t, Options{})
	s.put("/f", "abc")
	s.link("f", "/link")
	s.mustUpload("/link", "d", UploadOptions{Append: true})
	s.want("/link", "abcd")
	s.want("/f", "abc")
	s.link("none", "/dangling")
	s.mustUpload("/dangling", "d", UploadOptions{Append: true})
	s.want("/dangling", "d")
}

func TestUploadStopsTheCopyForAClientThatHasGone(t *testing.T) {
	s := serve(t, Options{})
	s.mustUpload("/f", "old", UploadOptions{})
	_, err := s.Upload("/f", UploadOptions{Append: true, Gone: func() bool { return true }})
	wantIs(t, err, context.Canceled)
	s.want("/f", "old")
	s.wantClean()
}

// A follower reads a large file while it arrives. The digest is that of the whole content, however the bytes come.
func TestSumOfALargeUpload(t *testing.T) {
	s := serve(t, Options{})
	content := make([]byte, 2*followStep+5)
	for i := range content {
		content[i] = byte(i >> 12)
	}
	for _, size := range []int{followStep - 4, followStep - 3, followStep + 1, len(content)} {
		for _, follows := range []bool{true, false} {
			s.put("/f", "old")
			u, err := s.Upload("/f", UploadOptions{Append: true, Sum: follows})
			if err != nil {
				t.Fatal(err)
			}
			first := content[:size/3]
			if _, err := u.Write(first); err != nil {
				t.Fatal(err)
			}
			if n, err := u.ReadFrom(bytes.NewReader(content[len(first):size])); n != int64(size-len(first)) || err != nil {
				t.Fatalf("%d, %v", n, err)
			}
			f := u.follower
			if got := f != nil; got != (u.Size() >= followStep) {
				t.Errorf("%d bytes: a follower: %v", size, got)
			}
			want := sha256.Sum256(slices.Concat([]byte("old"), content[:size]))
			if got, err := u.Sum(); err != nil || got != hex.EncodeToString(want[:]) {
				t.Errorf("%d bytes, %v: %s, %v", size, follows, got, err)
			}
			if f != nil && follows && f.hashed != u.Size() {
				t.Errorf("%d bytes: Sum has read the file again", size)
			}
			if err := u.Publish(); err != nil {
				t.Error(err)
			}
		}
	}
	u := s.begun("/f", "", UploadOptions{Sum: true})
	if _, err := u.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := u.Discard(); err != nil {
		t.Error(err)
	}
	s.wantClean()
}
