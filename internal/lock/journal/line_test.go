package journal

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// fill sets every field to something that is not zero and not what another field has, so that a field
// which a later version adds and the journal forgets is noticed here.
func fillFields(v reflect.Value, n *int) {
	*n++
	switch v.Interface().(type) {
	case *lock.Contention: // never set in a hold
		return
	case time.Time:
		v.Set(reflect.ValueOf(time.Date(2024, 1, 1, 0, 0, *n, *n, time.UTC)))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fillFields(v.Field(i), n)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fillFields(v.Index(i), n)
		}
	case reflect.String:
		v.SetString(fmt.Sprintf("/\x00\"\\%% %d \xff", *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(*n))
	case reflect.Pointer: // of a Rule: never set in a Hold
	default:
		panic("the journal cannot express a " + v.Type().String())
	}
}

func TestEveryFieldOfALineSurvives(t *testing.T) {
	var want line
	n := 0
	fillFields(reflect.ValueOf(&want).Elem(), &n)
	for i := range want.Holds {
		want.Holds[i].Adopted = 0 // is said to who adopts, and not kept
	}
	b := appendLine(nil, &want)
	got, err := parseLine(bytes.TrimSuffix(b, []byte("\n")))
	if err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v\n%s", got, want, b)
	}
	for _, c := range b[:len(b)-1] {
		if c < ' ' || c > '~' {
			t.Fatalf("byte %#x in %s", c, b)
		}
	}
}

func TestInstantsSurvive(t *testing.T) {
	wall := time.Date(2024, 2, 29, 12, 0, 0, 1, time.UTC)
	instants := []lock.Instant{
		{}, {Wall: wall}, {Boot: -1}, {BootID: "x"}, {Wall: wall, Boot: 5, BootID: "line"}, {BootID: "line"},
		{Wall: wall.In(time.FixedZone("", 3600)), BootID: ""},
	}
	for _, acquired := range instants {
		for _, other := range instants {
			want := line{Entry: lock.Entry{
				Cause: "acquire", Name: "/a", Token: 1, At: lock.Instant{Wall: wall, BootID: "line"},
				Holds: []lock.Hold{{Acquired: acquired, Renewed: other, Ended: other}},
			}}
			b := appendLine(nil, &want)
			got, err := parseLine(b[:len(b)-1])
			if err != nil {
				t.Fatal(err)
			}
			h := got.Holds[0]
			if !sameInstant(h.Acquired, acquired) || !sameInstant(h.Renewed, other) || !sameInstant(h.Ended, other) {
				t.Errorf("got %+v from %s", h, b)
			}
		}
	}
}

// signed is a line with a right checksum.
func signed(body string) string {
	return fmt.Sprintf(`%s,"crc":"%08x"}`, body, crc32.Checksum([]byte(body), checksums))
}

func TestParseLineRefuses(t *testing.T) {
	const good = `{"event":"acquire","name":"/a","token":1`
	if _, err := parseLine([]byte(signed(good))); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"nothing":                  "",
		"a wrong checksum":         strings.Replace(signed(good), "/a", "/b", 1),
		"an unknown key":           signed(good + `,"colour":"red"`),
		"an unknown key in a hold": signed(good + `,"holds":[{"token":1,"rule":{"colour":1}}]`),
		"a bare percent":           signed(`{"event":"acquire","name":"/a%","token":1`),
		"bytes that are not ASCII": signed("{\"event\":\"acquire\",\"name\":\"/\xc3\xa9\",\"token\":1"),
		"no file":                  signed(`{"event":"publish","name":"/a","token":1`),
		"a relative name":          signed(`{"event":"acquire","name":"a","token":1`),
	} {
		if l, err := parseLine([]byte(text)); err == nil {
			t.Errorf("%s: got %+v", name, l)
		}
	}
}

// FuzzLine feeds anything to the parser: what it accepts must be written again as what it meant.
func FuzzLine(f *testing.F) {
	var full line
	n := 0
	fillFields(reflect.ValueOf(&full).Elem(), &n)
	for _, l := range []line{
		full, {Entry: lock.Entry{Cause: eventJournal}, Version: version}, {Entry: lock.Entry{Cause: eventStart}, Generation: 3, Reserved: 4096},
		{Entry: lock.Entry{Cause: lock.CauseRelease, Name: "/a", Token: 2}},
		{Entry: lock.Entry{Cause: eventTombstone, Name: "/%", Token: 1}, Directory: lock.DirectoryID{Inode: 1}},
	} {
		f.Add(string(bytes.TrimSuffix(appendLine(nil, &l), []byte("\n"))), false)
	}
	f.Add(`{"event":"acquire","name":"/a","token":1,"holds":[{"token":1,"acquired":{"boot":1},"rule":{"match":"%2F"}}]`, true)
	f.Fuzz(func(t *testing.T, text string, sign bool) {
		if sign { // lets the fuzzer get past the checksum
			text = signed(text)
		}
		l, err := parseLine([]byte(text))
		if err != nil {
			return
		}
		again := appendLine(nil, &l)
		if bytes.Count(again, []byte("\n")) != 1 {
			t.Fatalf("more than one line: %q", again)
		}
		second, err := parseLine(again[:len(again)-1])
		if err != nil {
			t.Fatalf("%q became %q: %v", text, again, err)
		}
		if third := appendLine(nil, &second); !bytes.Equal(again, third) {
			t.Fatalf("%q became %q", again, third)
		}
	})
}
