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
		u := newUnblocked(w, func(w io.Writer, lines int) { fmt.Fprintf(w, "lost %d\n", lines) })
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
