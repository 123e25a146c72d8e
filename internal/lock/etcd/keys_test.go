package etcd

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

func TestKeysOfHolds(t *testing.T) {
	const k = keys("/ftplockd/")
	for _, name := range []lock.Name{"/a_lock", "/a/1f", "/\x00\xff%"} {
		for _, token := range []lock.Token{0x1f, 1<<64 - 1} {
			if got, n, err := k.holdOf([]byte(k.lock(name, token))); err != nil || got != name || n != token {
				t.Errorf("%q with token %d comes back as %q with %d: %v", name, token, got, n, err)
			}
		}
	}
	for _, key := range []string{"/ftplockd/lock/", "/ftplockd/lock/1f", "/ftplockd/lock/a_lock/", "/ftplockd/lock/a_lock/x"} {
		if name, token, err := k.holdOf([]byte(key)); err == nil {
			t.Errorf("%s is the hold of %q with token %d", key, name, token)
		}
	}
}

// A key below a prefix must not be in a range of keys of a shorter prefix.
func TestNoPrefixLiesInsideTheKeysOfAnother(t *testing.T) {
	for element, refused := range map[string]bool{
		"x": false, "locks": false, "epoch": false, "lock": true, "history": true, "leader": true, "lock/x": true, "history/0000000000000007": true, "x/lock": true,
	} {
		o := Options{Endpoints: []string{"x"}, Clock: locktest.NewFakeClock(), Prefix: "/f/" + element}
		if err := o.setDefaults(); (err != nil) != refused {
			t.Errorf("%s: %v", o.Prefix, err)
		}
	}
	const k = keys("/f/")
	for _, r := range []string{k.servers(), k.locks(), k.history()} {
		if element := strings.Trim(strings.TrimPrefix(r, "/f/"), "/"); !slices.Contains(ranges, element) {
			t.Errorf("the range %s is not refused in a prefix", r)
		}
	}
}

func TestValuesAreReadAsWritten(t *testing.T) {
	at := lock.Instant{Wall: time.Unix(5, 7).UTC(), Boot: -time.Hour}
	owner := lock.Owner{Account: "a\xff", Address: "::1", Session: 1<<63 | 5, Nonce: "n"}
	holds := []lock.Hold{
		{Name: "/a", Token: 1, Rule: &lock.Rule{}},
		{Name: "/a", Token: 2, Owner: owner, Shared: true, Acquired: at, Renewed: lock.Instant{Wall: at.Wall, Boot: 3},
			Rule:      &lock.Rule{Match: "/**", MaxAge: 1, MaxIdle: 2, OnDisconnect: "keep", Grace: 3, LockDelay: 4, Release: "user", AllowCwd: true},
			Asked:     lock.Asked{Age: 5, Release: true, Grace: 6},
			Directory: lock.DirectoryID{Inode: 1 << 63, Birth: -1, Parent: 3}},
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
	if got, err := decodeChunk([]byte(chunkVersion + string(chunk))); err != nil || !reflect.DeepEqual(got, entries) {
		t.Errorf("got  %+v\nwant %+v, %v", got, entries, err)
	}
	if _, err := decodeChunk(chunk); err == nil {
		t.Error("a chunk without a version is accepted")
	}
}

func TestVersionsAreCompared(t *testing.T) {
	for version, want := range map[string]bool{
		"3.6.5": false, "3.6.4": true, "3.10.0": false, "3.5.21": true, "4.0": false, "3.6": false, "": true, "3.6.x": true,
	} {
		if got := older(version, minVersion); got != want {
			t.Errorf("%q is older than %s: %v", version, minVersion, got)
		}
	}
}
