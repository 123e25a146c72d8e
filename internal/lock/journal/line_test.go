package journal

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// everyLine has every field of every kind.
func everyLine() []line {
	wall := time.Date(2026, 11, 23, 1, 2, 3, 4, time.UTC)
	at, later := lock.Instant{Wall: wall, Boot: 5}, lock.Instant{Wall: wall.Add(time.Hour), Boot: -7}
	owner := lock.Owner{Account: "ada\xff", Address: "::1", Session: 1<<63 | 9, JobKey: `"\%`}
	other := lock.Owner{Account: "root", Address: "192.0.2.1", Session: 1, JobKey: "x"}
	hold := lock.Hold{
		Name: "/d/a b_lock\n", Token: 1<<64 - 1, Owner: owner, Acquired: later, Renewed: at, Shared: true, Job: true,
		Rule: &lock.Rule{
			Match: "**", MaxAge: 1, MaxIdle: 2, OnDisconnect: lock.KeepOnDisconnect, Grace: 3, LockDelay: 4,
			Release: lock.ReleaseAnyone, AllowCwd: true,
		},
		Asked: lock.Asked{Age: 5, Release: true, Grace: 6}, Directory: lock.DirectoryID{Inode: 1<<64 - 1, Birth: -1, Parent: 3}, Note: `web3 "ü" 4711%`,
	}
	short := lock.Hold{Name: "/a_lock", Token: 1, Owner: owner, Acquired: at, Renewed: at}
	ended := lock.Hold{Name: "/a_lock", Token: 1, Owner: owner}
	file := &lock.Publication{Path: "/f", Bytes: 9, SHA256: "00"}
	return []line{
		{kind: lock.Granted, record: &lock.Record{Kind: lock.Granted, Cause: lock.CauseAdopt, Hold: hold, Replaces: 3, By: other, At: at, Note: "n\x00"}},
		{kind: lock.Granted, record: &lock.Record{Kind: lock.Granted, Cause: lock.CauseAcquire, Hold: short, By: owner, At: at}},
		{kind: lock.Granted, record: &lock.Record{Kind: lock.Granted, Cause: lock.CauseAcquire, Hold: short, At: at}},
		{kind: lock.Changed, record: &lock.Record{Kind: lock.Changed, Cause: lock.CauseRenew, Hold: hold, By: owner, At: later}},
		{kind: lock.Ended, record: &lock.Record{Kind: lock.Ended, Cause: lock.CauseBreak, Hold: ended, By: other, At: later}, held: 8},
		{kind: lock.Published, record: &lock.Record{Kind: lock.Published, Cause: lock.CausePublish, Hold: ended, By: owner, At: later, File: file}},
		{kind: heldLine, record: &lock.Record{Kind: heldLine, Hold: short, By: owner}},
		{kind: segmentLine, number: 7, header: header{1, 2, "b", at, 3, 4, 5, 6}},
		{kind: syncedLine, number: 1<<64 - 1},
		{kind: syncedLine},
		{kind: closedLine, number: 1},
	}
}

func TestLinesAreReadAsWritten(t *testing.T) {
	var w, r coder
	for range 2 { // the second time with what the line has
		for _, want := range everyLine() {
			w.b = w.b[:0]
			w.writeLine(&want)
			text := strings.TrimSuffix(string(w.b), "\n")
			if !json.Valid(w.b) || strings.ContainsAny(text, "\n\x00") {
				t.Errorf("no JSON: %s", w.b)
			}
			var got line
			if err := r.readLine([]byte(text), &got); err != nil {
				t.Fatalf("%v: %s", err, text)
			}
			if got.record != nil && want.record == nil {
				got.record = nil
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s\ngot  %+v %+v\nwant %+v %+v", text, got, got.record, want, want.record)
			}
		}
	}
}

// A line from a version without notes has no note, and a line without a note has the form of that version.
func TestLinesWithoutANoteAreAsBeforeNotes(t *testing.T) {
	const old = `{"grant":"/a_lock","token":1,"cause":"acquire","boot":5,"account":"ada","inode":3`
	text := string(appendSum([]byte(old), []byte(old)))
	var r, w coder
	var l line
	if err := r.readLine([]byte(text), &l); err != nil || l.record.Hold.Note != "" || l.record.Hold.Directory.Inode != 3 {
		t.Fatalf("%v: %+v", err, l.record)
	}
	if w.writeLine(&l); string(w.b) != text+"\n" {
		t.Errorf("got  %swant %s", w.b, text)
	}
}

func TestALineIsReadAsAWhole(t *testing.T) {
	var w, r coder
	for _, l := range everyLine() {
		w.b = w.b[:0]
		w.writeLine(&l)
		text := string(w.b[:len(w.b)-1])
		var got line
		for i := range text {
			changed := []byte(text)
			changed[i] ^= 1
			if r.readLine(changed, &got) == nil {
				t.Errorf("a bit is wrong: %s", changed)
			}
			if r.readLine([]byte(text[:i]), &got) == nil {
				t.Errorf("cut off: %s", text[:i])
			}
		}
	}
}

// FuzzRead looks for a line that is read, and written in another way.
func FuzzRead(f *testing.F) {
	var w coder
	for _, l := range everyLine() {
		w.b = w.b[:0]
		w.writeLine(&l)
		f.Add(string(w.b[:len(w.b)-1-sumLength]))
	}
	f.Fuzz(func(t *testing.T, body string) {
		text := string(appendSum([]byte(body), []byte(body)))
		var w, r coder
		var l line
		if r.readLine([]byte(text), &l) != nil {
			return
		}
		w.writeLine(&l)
		var again line
		if err := r.readLine(w.b[:len(w.b)-1], &again); err != nil || !reflect.DeepEqual(l, again) {
			t.Errorf("%s\n%s\n%v", text, w.b, err)
		}
	})
}
