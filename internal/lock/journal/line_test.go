package journal

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/record"
)

// TestATornLineIsDroppedAndAFaultyLineIsDamage changes each bit of them.
func TestMarksAreReadAsWritten(t *testing.T) {
	at := lock.Instant{Wall: time.Date(2026, 11, 23, 1, 2, 3, 4, time.UTC), Boot: 5}
	var got line
	for _, want := range []mark{
		{kind: segmentLine, header: header{7, 1, 2, `b "`, at, 3, 1<<64 - 1, 5, 6}}, {kind: syncedLine, number: 1<<64 - 1}, {kind: syncedLine}, {kind: closedLine, number: 1},
	} {
		if text := want.appendTo(nil); got.read(text) != nil || !reflect.DeepEqual(got, line{mark: want}) || bytes.ContainsAny(text, "\n\x00") {
			t.Errorf("%s\ngot  %+v\nwant %+v", text, got, want)
		}
	}
	for _, body := range []string{"synced", "synced ", "synced -1", "segment", `segment {"number":"x"}`} {
		if err := got.read(record.Seal([]byte(body), 0)); err == nil || !reflect.DeepEqual(got, line{}) {
			t.Errorf("%q is read as %+v", body, got)
		}
	}
}
