package server

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestALogWithoutAReaderBlocksNoWriterAndReportsLostLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		u := newUnblocked(w, func(lines int) { fmt.Fprintf(w, "lost %d\n", lines) })
		line := []byte(strings.Repeat("x", 1023) + "\n")
		if n, err := u.Write(line); n != len(line) || err != nil {
			t.Fatal(n, err)
		}
		synctest.Wait() // it waits for its reader
		const fit = maxUnwritten / 1024
		for range fit + 7 {
			_, _ = u.Write(line)
		}
		if got := u.Dropped(); got != 7 {
			t.Errorf("%d lines dropped, want 7", got)
		}
		began := time.Now()
		u.close(time.Second)
		if took := time.Since(began); took != time.Second {
			t.Errorf("close took %v", took)
		}
		go func() {
			<-u.done
			w.Close()
		}()
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := bytes.Count(text, []byte("x\n")), 1+fit; got != want || !bytes.HasSuffix(text, []byte("lost 7\n")) {
			t.Errorf("%d lines, want %d, and the end is %q", got, want, text[len(text)-10:])
		}
	})
}

// failing is a writer whose next writes fail.
type failing struct {
	bytes.Buffer
	errs int
}

func (f *failing) Write(p []byte) (int, error) {
	if f.errs--; f.errs >= 0 {
		return 0, io.ErrClosedPipe
	}
	return f.Buffer.Write(p)
}

func TestLinesOfALogWhoseWritesFailAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &failing{errs: 2}
		u := newUnblocked(w, func(lines int) { fmt.Fprintf(w, "lost %d\n", lines) })
		for _, line := range []string{"1\n2\n", "3\n", "4\n", "5\n"} {
			_, _ = u.Write([]byte(line))
			synctest.Wait()
		}
		u.close(time.Second)
		if got := w.String(); got != "4\nlost 3\n5\n" || u.Dropped() != 3 {
			t.Errorf("%q, %d dropped", got, u.Dropped())
		}
	})
}
