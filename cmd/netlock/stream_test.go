package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestStreamsArePassedOnWhole(t *testing.T) {
	defer goleak.VerifyNone(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	text := strings.Repeat("text\n", 100000)
	if got, err := io.ReadAll(readUntil(ctx, strings.NewReader(text))); err != nil || string(got) != text {
		t.Errorf("read %d bytes, %v", len(got), err)
	}
	var b bytes.Buffer
	w, flush := writeUntil(ctx, &b)
	_, err := io.WriteString(w, text)
	if err := errors.Join(err, flush()); err != nil || b.String() != text {
		t.Errorf("wrote %d bytes, %v", b.Len(), err)
	}
}

func TestStreamsThatStandStillEndWithTheirContext(t *testing.T) {
	defer goleak.VerifyNone(t)
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	never, end := io.Pipe()
	stuck, take := io.Pipe()
	r := readUntil(ctx, never)
	w, flush := writeUntil(ctx, take)
	if _, err := io.WriteString(w, "more than is taken"); err != nil {
		t.Error(err)
	}
	cancel(enough)
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, enough) {
		t.Errorf("reading: %v", err)
	}
	if err := flush(); !errors.Is(err, enough) {
		t.Errorf("writing: %v", err)
	}
	end.Close()
	stuck.Close()
}

func TestFailingReaderIsNoEndOfTheFile(t *testing.T) {
	broken := errors.New("broken")
	r, w := io.Pipe()
	w.CloseWithError(broken)
	if _, err := io.ReadAll(readUntil(t.Context(), r)); !errors.Is(err, broken) {
		t.Error(err)
	}
}
