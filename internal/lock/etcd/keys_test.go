package etcd

import (
	"reflect"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

func TestKeysOfHolds(t *testing.T) {
	const k = keys("/ftplockd/")
	for _, name := range []lock.Name{"/a_lock", "/a/1f", "/\x00\xff%"} {
		for _, token := range []lock.Token{0x1f, 1<<64 - 1} {
			if got, n, err := k.holdOf([]byte(k.lock(name, token))); err != nil || got != name || n != token {
				t.Errorf("%q with token %d is read as %q with %d: %v", name, token, got, n, err)
			}
		}
	}
	for _, key := range []string{"/ftplockd/lock/", "/ftplockd/lock/1f", "/ftplockd/lock/a_lock/", "/ftplockd/lock/a_lock/x"} {
		if name, token, err := k.holdOf([]byte(key)); err == nil {
			t.Errorf("%s is accepted as the hold of %q with token %d", key, name, token)
		}
	}
}

// A value from a version without notes has no note, and a value without a note has the form of that version.
func TestValuesWithoutANoteAreAsBeforeNotes(t *testing.T) {
	const old = "\x01\x00" + "\x06ada\x00\x00\x00" + "\x0a\x06" + "\x06/**\x00\x00\x00\x00\x00\x00"
	h, err := decodeHold([]byte(old), "/a", 1)
	if err != nil || h.Note != "" || h.Rule.Match != "/**" || h.Owner.Account != "ada" {
		t.Fatalf("%+v %v", h, err)
	}
	if got := encodeHold(h); got != old {
		t.Errorf("got %q, want %q", got, old)
	}
}

func TestValuesAreReadAsWritten(t *testing.T) {
	at := lock.Instant{Wall: time.Unix(5, 7).UTC(), Boot: -time.Hour}
	owner := lock.Owner{Account: "a\xff", Address: "::1", Session: 1<<63 | 5, JobKey: "n"}
	holds := []lock.Hold{
		{Name: "/a", Token: 1, Rule: &lock.Rule{}},
		{Name: "/a", Token: 2, Owner: owner, Shared: true, Acquired: at, Renewed: lock.Instant{Wall: at.Wall, Boot: 3},
			Rule:      &lock.Rule{Match: "/**", MaxAge: 1, MaxIdle: 2, OnDisconnect: "keep", Grace: 3, LockDelay: 4, Release: "user", AllowCwd: true},
			Asked:     lock.Asked{Age: 5, Release: true, Grace: 6},
			Directory: lock.DirectoryID{Inode: 1 << 63, Birth: -1, Parent: 3}, Note: "web3 4711 ü"},
	}
	for _, want := range holds {
		value := encodeHold(want)
		got, err := decodeHold([]byte(value), want.Name, want.Token)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v\nwant %+v, %v", got, want, err)
		}
		for n := range len(value) {
			if _, err := decodeHold([]byte(value[:n]), "/a", 1); err == nil {
				t.Errorf("%d of %d bytes are accepted", n, len(value))
			}
		}
	}
	at.Boot = 0
	entries := []lock.Entry{
		{At: at, Cause: lock.CauseAcquire, Name: "/a", Token: 1, Owner: owner, By: owner},
		{At: at, Cause: lock.CausePublish, Name: "/a", Token: 1, Owner: owner, By: lock.Owner{Account: "b"}, Held: 5, Note: "n",
			File: &lock.Publication{Path: "/f", Bytes: 1 << 40, SHA256: "00"}},
	}
	var chunk []byte
	for _, e := range entries {
		chunk = appendEntry(chunk, e)
	}
	if got, err := decodeChunk([]byte(formatVersion + string(chunk))); err != nil || !reflect.DeepEqual(got, entries) {
		t.Errorf("got  %+v\nwant %+v, %v", got, entries, err)
	}
	if _, err := decodeChunk(chunk); err == nil {
		t.Error("a chunk without a version is accepted")
	}
}
