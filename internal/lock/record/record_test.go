package record

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// everyLine has every field of every kind, with values that are hard to write.
func everyLine() []Line {
	wall := time.Date(2026, 11, 23, 1, 2, 3, 4, time.UTC)
	at, later := lock.Instant{Wall: wall, Boot: 5}, lock.Instant{Wall: wall.Add(time.Hour), Boot: -7}
	owner := lock.Owner{Account: "ada\xff", Address: "::1", Session: 1<<63 | 9, JobKey: `"\% =`}
	other := lock.Owner{Account: "root", Address: "192.0.2.1", Session: 1, JobKey: "x"}
	hold := lock.Hold{
		Name: "/d/a b_lock\n", Token: 1<<64 - 1, Owner: owner, Acquired: later, Renewed: at, Shared: true, Job: true,
		Rule: &lock.Rule{
			Match: "**", MaxAge: time.Hour, MaxIdle: 2, OnDisconnect: lock.KeepOnDisconnect, Grace: -1 << 63, LockDelay: 1<<63 - 1,
			Release: lock.ReleaseAnyone, AllowCwd: true,
		},
		Asked: lock.Asked{Age: 5, Release: true, Grace: 6}, Directory: lock.DirectoryID{Inode: 1<<64 - 1, Birth: -1, Parent: 3}, Note: `web3 "ü" 4711%`,
	}
	short := lock.Hold{Name: "/a_lock", Token: 1, Owner: owner, Acquired: at, Renewed: at, Rule: &lock.Rule{}}
	ended := lock.Hold{Name: "/a_lock", Token: 1, Owner: owner}
	file := &lock.Publication{Path: "/f x", Bytes: -9, SHA256: "00"}
	return []Line{
		{Record: lock.Record{Kind: lock.Granted, Cause: lock.CauseAdopt, Hold: hold, Replaces: 3, By: other, At: at, Note: "n\x00"}},
		{Record: lock.Record{Kind: lock.Granted, Cause: lock.CauseAcquire, Hold: short, By: owner, At: at}},
		{Record: lock.Record{Kind: lock.Granted, Cause: lock.CauseAcquire, Hold: short, At: at}},
		{Record: lock.Record{Kind: lock.Changed, Cause: lock.CauseRenew, Hold: hold, By: owner, At: later}},
		{Record: lock.Record{Kind: lock.Ended, Cause: lock.CauseBreak, Hold: ended, By: other, At: later}, Held: 8},
		{Record: lock.Record{Kind: lock.Published, Cause: lock.CausePublish, Hold: ended, By: owner, At: later, File: file}},
		{Record: lock.Record{Kind: lock.Published, Cause: lock.CauseRefuse, Hold: ended, By: owner, File: &lock.Publication{Path: "/"}}},
		{Record: lock.Record{Kind: Held, Hold: short, By: owner, At: at}},
	}
}

func (l *Line) text() []byte { return appendRecord(nil, &l.Record, l.Held) }

func TestLinesAreReadAsWrittenAndAsAWhole(t *testing.T) {
	var got Line
	for _, want := range everyLine() {
		text := want.text()
		if err := got.Decode(text); err != nil || !reflect.DeepEqual(got, want) || bytes.ContainsAny(text, "\n\x00") {
			t.Errorf("%q\ngot  %+v\nwant %+v, %v", text, got, want, err)
		}
		for i := range text {
			changed := bytes.Clone(text)
			changed[i] ^= 1
			for _, wrong := range [][]byte{changed, text[:i]} {
				if got := want; got.Decode(wrong) == nil || !reflect.DeepEqual(got, Line{}) {
					t.Errorf("%q is read as %+v", wrong, got)
				}
			}
		}
	}
}

// The form is on the disks of users: this text changes only together with the versions of the formats.
func TestTheForm(t *testing.T) {
	at := lock.Instant{Wall: time.Unix(5, 7), Boot: time.Hour}
	r := lock.Record{Kind: lock.Granted, Cause: lock.CauseAcquire, At: at, Replaces: 3, Hold: lock.Hold{
		Name: "/a b", Token: 12, Owner: lock.Owner{Account: "ada", Session: 3<<40 | 17}, Acquired: at, Renewed: at, Note: "web3",
		Rule: &lock.Rule{Match: "/**", MaxAge: time.Minute, Grace: time.Minute + 1, Release: lock.ReleaseUser},
	}}
	r.By = r.Hold.Owner
	end := lock.Record{Kind: lock.Ended, Cause: lock.CauseBreak, Hold: r.Hold, At: lock.Instant{Boot: 2 * time.Hour}, By: lock.Owner{Account: "root"}}
	for _, c := range []struct{ got, want string }{
		{string(Append(nil, &r)), "grant /a%20b 12 acquire 5000000007+3600000000000 ada  3-17 replaces=3 hold_note=web3 rule=/** 60s 0 60000000001 0  user "},
		{string(AppendHold(nil, &r.Hold)), "held /a%20b 12  5000000007+3600000000000 ada  3-17 hold_note=web3 rule=/** 60s 0 60000000001 0  user "},
		{string(AppendEntry(nil, &r)), "grant /a%20b 12 acquire 5000000007 ada  3-17 note=web3 "},
		{string(Append(nil, &end)), "end /a%20b 12 break 0+7200000000000 ada  3-17 by=root   held=3600s "},
		{string(AppendEntry(nil, &end)), "end /a%20b 12 break 0 ada  3-17 by=root   held=3600s "},
	} {
		if got := c.got[:len(c.got)-sumLength+1]; got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

func TestErrorsNameTheByteAndWhatBelongsThere(t *testing.T) {
	const start = "grant /a 1 acquire 0 ada  3-17"
	for text, want := range map[string]string{
		"":                               "at byte 1: want grant, end, change, publish or held",
		`{"grant":"/a"`:                  "at byte 1: want grant, end, change, publish or held",
		"grant a":                        "at byte 7: want a name with a slash at its beginning",
		"grant /a x":                     "at byte 10: want a number",
		"grant /a -1":                    "at byte 10: want a number",
		"grant /a 01":                    "at byte 10: want a number",
		"grant /a 1":                     "at byte 11: want a blank",
		"grant /a 1  0":                  "at byte 12: want a cause",
		start + " by=%4":                 "at byte 35: want a percent-encoded text",
		start + " unknown=1":             "at byte 31: want a known field",
		"grant /a 1 acquire 0 ada  9":    "at byte 27: want a session such as 3-17",
		start + " rule=/":                "at byte 38: want a blank",
		start + " asked_age=9999999999s": "at byte 53: want fewer seconds",
		"held /a 1  0 ada  3-17":         "at byte 23: want a rule",
	} {
		var l Line
		err := l.Decode(Seal([]byte(text), 0))
		if err == nil || err.Error() != want || !reflect.DeepEqual(l, Line{}) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	var l Line
	if err := l.Decode([]byte(start + " 01234567")); err == nil || !strings.Contains(err.Error(), "at byte 31: want the checksum ") {
		t.Error(err)
	}
}

func TestWritingAllocatesNothing(t *testing.T) {
	b := make([]byte, 0, 4<<10)
	l := everyLine()[0]
	if n := testing.AllocsPerRun(100, func() { AppendHold(AppendEntry(Append(b, &l.Record), &l.Record), &l.Hold) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzDecode looks for a text that is read, and is then written in another way.
func FuzzDecode(f *testing.F) {
	for _, l := range everyLine() {
		text := l.text()
		f.Add(text[:len(text)-sumLength])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var l, again Line
		_ = l.Decode(body)
		if l.Decode(Seal(bytes.Clone(body), 0)) != nil {
			return
		}
		if err := again.Decode(l.text()); err != nil || !reflect.DeepEqual(l, again) {
			t.Errorf("%q\n%q\n%v", body, l.text(), err)
		}
	})
}
