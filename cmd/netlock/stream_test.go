package main

import (
	"context"
	"errors"
	"io"
	"testing"

	"go.uber.org/goleak"
)

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
