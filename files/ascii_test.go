package files

import (
	"bytes"
	"strings"
	"testing"
)

// The references: slow, and plainly right.
func referenceLF(s string) string { return strings.ReplaceAll(s, "\r\n", "\n") }

func referenceCRLF(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\n", "\r\n")
}

// inPieces converts s cut at the given places.
func inPieces(s string, cuts ...int) (lf, crlf string) {
	var in toLF
	var out toCRLF
	var a, b []byte
	from := 0
	for _, to := range append(cuts, len(s)) {
		piece := []byte(s[from:to])
		was := len(b)
		held := append(make([]byte, 1), piece...)
		a = append(a, in.convert(held[:0], held[1:])...) // in place, as copyIn does
		b = out.convert(b, piece)
		if len(b)-was > 2*len(piece) {
			panic("more than the room")
		}
		from = to
	}
	return string(in.end(a)), string(b)
}

func TestASCIIConvertsExactly(t *testing.T) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for _, c := range []struct{ name, wire, stored, sent string }{
		{"nothing", "", "", ""},
		{"lines", "a\r\nb\r\n", "a\nb\n", "a\r\nb\r\n"},
		{"no newline at the end", "a\r\nb", "a\nb", "a\r\nb"},
		{"bare LF stays", "a\nb\n", "a\nb\n", "a\r\nb\r\n"},
		{"lone CR stays", "a\rb", "a\rb", "a\rb"},
		{"lone CR at the end", "a\r", "a\r", "a\r"},
		{"CR CR LF loses one CR", "a\r\r\n", "a\r\n", "a\r\r\n"},
		{"empty lines", "\r\n\r\n\r\n", "\n\n\n", "\r\n\r\n\r\n"},
		{"LF LF", "\n\n", "\n\n", "\r\n\r\n"},
		{"LF CR", "\n\r", "\n\r", "\r\n\r"},
		{"8-bit bytes", string(all), string(all), strings.Replace(string(all), "\n", "\r\n", 1)},
		{"invalid UTF-8", "\xff\xfe\r\n\xc3", "\xff\xfe\n\xc3", "\xff\xfe\r\n\xc3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for first := range len(c.wire) + 1 {
				for second := first; second <= len(c.wire); second++ {
					lf, crlf := inPieces(c.wire, first, second)
					if lf != c.stored {
						t.Fatalf("stored in pieces at %d, %d: %q, want %q", first, second, lf, c.stored)
					}
					if crlf != c.sent {
						t.Fatalf("sent in pieces at %d, %d: %q, want %q", first, second, crlf, c.sent)
					}
				}
				if len(c.wire) > 100 {
					break
				}
			}
		})
	}
}

func FuzzASCII(f *testing.F) {
	for _, s := range []string{"", "\r", "\n", "\r\n", "a\r\r\n\nb", "\r\r\r\n\n\n"} {
		f.Add([]byte(s), 1, 2)
	}
	f.Fuzz(func(t *testing.T, s []byte, a, b int) {
		a, b = abs(a)%(len(s)+1), abs(b)%(len(s)+1)
		lf, crlf := inPieces(string(s), min(a, b), max(a, b))
		if want := referenceLF(string(s)); lf != want {
			t.Fatalf("stored %q, want %q", lf, want)
		}
		if want := referenceCRLF(string(s)); crlf != want {
			t.Fatalf("sent %q, want %q", crlf, want)
		}
	})
}

func abs(n int) int {
	if n < 0 {
		return -(n + 1)
	}
	return n
}

func TestEverySplitOfEveryShortStringConverts(t *testing.T) {
	const alphabet = "a\r\n"
	for n := range 3 * 3 * 3 * 3 * 3 * 3 {
		s := make([]byte, 6)
		for i := range s {
			s[i] = alphabet[n%3]
			n /= 3
		}
		for a := range len(s) + 1 {
			for b := a; b <= len(s); b++ {
				lf, crlf := inPieces(string(s), a, b)
				if lf != referenceLF(string(s)) || crlf != referenceCRLF(string(s)) {
					t.Fatalf("%q cut at %d, %d: stored %q, sent %q", s, a, b, lf, crlf)
				}
			}
		}
	}
}

// lines is text as it is usual: lines of 0 to 99 bytes.
func lines(size int, end string) []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < size; i++ {
		b.WriteString(strings.Repeat("x", i*37%100))
		b.WriteString(end)
	}
	return b.Bytes()
}

func BenchmarkASCII(b *testing.B) {
	in, out := lines(128<<10, "\r\n"), lines(128<<10, "\n")
	dst := make([]byte, 0, 512<<10)
	b.Run("to LF", func(b *testing.B) {
		b.SetBytes(int64(len(in)))
		for b.Loop() {
			dst = (&toLF{}).convert(dst[:0], in)
		}
	})
	b.Run("to CRLF", func(b *testing.B) {
		b.SetBytes(int64(len(out)))
		for b.Loop() {
			dst = (&toCRLF{}).convert(dst[:0], out)
		}
	})
}
