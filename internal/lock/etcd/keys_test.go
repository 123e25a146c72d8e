package etcd

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

func FuzzKeysAreReversible(f *testing.F) {
	f.Add("a_lock", uint64(1))
	f.Add("a/1f", uint64(0x1f))
	f.Add("\x00\xff%", ^uint64(0))
	k := keys("/ftplockd/")
	f.Fuzz(func(t *testing.T, name string, token uint64) {
		if name == "" {
			return
		}
		want := lock.Name("/" + name)
		key := k.lock(want, lock.Token(token))
		if got, n, err := k.holdOf([]byte(key)); err != nil || got != want || n != lock.Token(token) {
			t.Errorf("%q comes back as %q and %d from %q: %v", want, got, n, key, err)
		}
		if !strings.HasPrefix(key, k.locks()) {
			t.Errorf("%q is not below %q", key, k.locks())
		}
	})
}

func TestKeysThatAreNoneOfALock(t *testing.T) {
	for _, key := range []string{"/ftplockd/lock/", "/ftplockd/lock/1f", "/ftplockd/lock/a_lock/", "/ftplockd/lock/a_lock/x"} {
		if name, token, err := keys("/ftplockd/").holdOf([]byte(key)); err == nil {
			t.Errorf("%s is the hold of %q with token %d", key, name, token)
		}
	}
}

// A longer prefix is refused if its keys could be in a range of keys of a shorter one.
func TestNoPrefixLiesInsideTheKeysOfAnother(t *testing.T) {
	all := func(k keys) []string {
		return []string{
			k.servers() + "1f", k.tokens(), k.epoch(), k.beat(), k.stepDown(), k.lock("/lock/a", 1), k.chunk(7),
		}
	}
	const shorter = keys("/f/")
	for _, element := range []string{"x", "locks", "lock", "history", "leader", "epoch", "tokens", "lock/x", "history/0000000000000007", "x/lock"} {
		longer := Options{Endpoints: []string{"x"}, Clock: locktest.NewFakeClock(), Prefix: string(shorter) + element}
		err := longer.setDefaults()
		meets := false
		for _, key := range all(keys(longer.Prefix)) {
			for _, r := range []string{shorter.servers(), shorter.locks(), shorter.history()} {
				meets = meets || strings.HasPrefix(key, r)
			}
			for _, single := range all(shorter) {
				meets = meets || key == single
			}
		}
		if meets && err == nil {
			t.Errorf("%s is accepted, and meets the keys of %s", longer.Prefix, shorter)
		}
		if err != nil && !strings.Contains(element, "lock") && !meets {
			t.Errorf("%s: %v", longer.Prefix, err)
		}
	}
}

func TestValuesComeBack(t *testing.T) {
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
