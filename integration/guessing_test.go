package integration

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// guess sends wrong passwords over one connection after the other, until ctx ends. It counts the 530s.
func guess(ctx context.Context, server, address string, guesses *atomic.Int64) {
	for ctx.Err() == nil {
		c, greeting, err := connectFrom(from(address), server)
		if err != nil {
			continue
		}
		stop := context.AfterFunc(ctx, func() { c.Conn.Close() })
		for err == nil && greeting.Code == 220 {
			var r harness.Reply
			if _, err = c.Try("USER " + account); err == nil {
				r, err = c.Try("PASS wrong")
			}
			if err != nil || r.Code != 530 {
				break
			}
			guesses.Add(1)
		}
		stop()
		c.Conn.Close()
		select { // a refused client does not try all the time
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// TestAttackPasswordsAreGuessed guesses a password over hundreds of connections. The account still logs in, from new addresses. Package guessing tests
// the counts and the delays.
func TestAttackPasswordsAreGuessed(t *testing.T) {
	const connections, addresses = 240, 24
	s := startServer(t, defaults)
	began := time.Now()
	c := s.stranger()
	for range 3 { // 0.3, 0.6 and 1.2 s
		c.Want(331, "USER nobody")
		c.Want(530, "PASS guess")
	}
	if took := time.Since(began); took < 2100*time.Millisecond {
		t.Errorf("three wrong passwords took %v", took)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var attackers sync.WaitGroup
	var guesses atomic.Int64
	began = time.Now()
	for i := range connections {
		attackers.Go(func() { guess(ctx, s.v4, fmt.Sprintf("127.0.1.%d", 1+i%addresses), &guesses) })
	}
	harness.Await(t, "the attack has begun", func() bool { return guesses.Load() > addresses })
	for i := range 8 {
		c, err := loginFrom(from(fmt.Sprint("127.0.2.", i+1)), s.v4, account)
		if err != nil {
			t.Error(err)
			continue
		}
		c.Conn.Close()
	}
	cancel()
	attackers.Wait()
	// Ten failures are too many for an address; one is forgiven each 30 s.
	if most := int64(addresses) * int64(12+time.Since(began).Seconds()/30); guesses.Load() > most {
		t.Errorf("%d passwords were checked, more than %d", guesses.Load(), most)
	}
}
