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
	r := lock.Record{Kind: lock.Granted, Cause: lock.CauseAcquire, Hold: lock.Hold{Name: "/a", Token: 1, Rule: &lock.Rule{Match: "/**"}}}
	value := record.AppendHold(nil, &r.Hold)
	if got, err := decodeHold(value, "/a", 1); err != nil || !reflect.DeepEqual(got, r.Hold) {
		t.Errorf("got %+v, %v", got, err)
	}
	_, name := decodeHold(value, "/b", 1)
	_, token := decodeHold(value, "/a", 2)
	_, kind := decodeHold(record.Append(nil, &r), "/a", 1)
	if name == nil || token == nil || kind == nil {
		t.Errorf("another line is accepted: %v, %v, %v", name, token, kind)
	}
	chunk := appendEntry(appendEntry(nil, &r), &r)
	got, err := decodeChunk(chunk)
	if _, cut := decodeChunk(chunk[:len(chunk)-1]); err != nil || len(got) != 2 || cut == nil || cut.Error() != "line 2 is damaged: want a newline at its end" {
		t.Errorf("got %+v, %v; without its end: %v", got, err, cut)
	}
}
