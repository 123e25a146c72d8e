package etcd

import (
	"reflect"
	"testing"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/record"
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

// A value is the line of the hold that its key names, and a chunk is whole lines.
func TestValuesAreReadAsAWhole(t *testing.T) {
	r := lock.Record{Kind: lock.Granted, Cause: lock.CauseAcquire, Hold: lock.Hold{Name: "/a", Token: 1, Rule: rule}}
	value := record.AppendHold(nil, &r.Hold)
	if got, err := decodeHold(value, "/a", 1); err != nil || !reflect.DeepEqual(got, r.Hold) {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, wrong := range []struct {
		value []byte
		name  lock.Name
		token lock.Token
	}{{value, "/b", 1}, {value, "/a", 2}, {record.Append(nil, &r), "/a", 1}, {nil, "/a", 1}} {
		if got, err := decodeHold(wrong.value, wrong.name, wrong.token); err == nil || !reflect.DeepEqual(got, lock.Hold{}) {
			t.Errorf("%q is read as %+v", wrong.value, got)
		}
	}
	chunk := appendEntry(appendEntry(nil, &r), &r)
	if got, err := decodeChunk(chunk); err != nil || len(got) != 2 || got[0].Name != "/a" {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := decodeChunk(chunk[:len(chunk)-1]); err == nil || err.Error() != "line 2 is damaged: want a newline at its end" {
		t.Errorf("a chunk without its end: %v", err)
	}
}
