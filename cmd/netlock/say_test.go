package main

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

func TestWhatNobodyReadsIsNotWaitedForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unread, w := io.Pipe()
		began := time.Now()
		if err := heard(say(w, "x")); !errors.Is(err, errUnread) || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		unread.Close()
		var b bytes.Buffer
		if err := heard(say(&b, "x")); err != nil || b.String() != "x" {
			t.Errorf("%q, %v", b.String(), err)
		}
	})
}
