package journal

import (
	"context"
	"fmt"

	"github.com/ftplockd/ftplockd/internal/lock"
)

var _ lock.Publications = (*Store)(nil)

// Published implements [lock.Publications]: a line of its own, on disk with the next grant that is synced. No record
// changes by it, and its token is that of the hold.
func (s *Store) Published(_ context.Context, p lock.Publication) error {
	if p.Lock == "" || p.Token == 0 || p.File == "" {
		return fmt.Errorf("%s: a publication without a file, a lock and a token", p.File)
	}
	if err := s.enter(); err != nil {
		return err
	}
	defer s.gate.RUnlock()
	return s.log.write(&line{
		Event: lock.CausePublish, Name: p.Lock, Token: p.Token, At: s.o.Clock.Now(), By: p.By, Note: p.Note,
		File: p.File, Bytes: p.Bytes, SHA256: p.SHA256,
	})
}
