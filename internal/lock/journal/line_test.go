package journal

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/record"
)

var everyMark = []mark{
	{kind: segmentLine, header: header{7, 1, 2, `b "`, lock.Instant{Wall: time.Date(2026, 11, 23, 1, 2, 3, 4, time.UTC), Boot: 5}, 3, 1<<64 - 1, 5, 6}},
	{kind: syncedLine, number: 1<<64 - 1},
	{kind: syncedLine},
	{kind: closedLine, number: 1},
}

func TestAMarkIsReadAsAWhole(t *testing.T) {
	var got line
	for _, want := range everyMark {
		text := want.appendTo(nil)
		if err := got.read(text); err != nil || !reflect.DeepEqual(got, line{mark: want}) || bytes.ContainsAny(text, "\n\x00") {
			t.Errorf("%s\ngot  %+v\nwant %+v, %v", text, got, want, err)
		}
		for i := range text {
			changed := bytes.Clone(text)
			changed[i] ^= 1
			for _, wrong := range [][]byte{changed, text[:i]} {
				if got.read(wrong) == nil || !reflect.DeepEqual(got, line{}) {
					t.Errorf("%q is read as %+v", wrong, got)
				}
			}
		}
	}
	for _, body := range []string{"synced", "synced ", "synced -1", "segment", `segment {"number":"x"}`} {
		if err := got.read(record.Seal([]byte(body), 0)); err == nil {
			t.Errorf("%q is read as %+v", body, got)
		}
	}
}
