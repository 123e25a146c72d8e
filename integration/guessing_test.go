package integration

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// slowHash returns a hash of "ftplockd passwd", which is slow to check.
var slowHash = sync.OnceValue(func() string {
	passwd := exec.Command(binary, "passwd")
	passwd.Stdin = strings.NewReader(password + "\n")
	out, err := passwd.Output()
	if err != nil {
		panic(err)
	}
	return strings.TrimSpace(string(out))
})

// withSlowHashes returns the configuration of n accounts: user0, user1, ...
func withSlowHashes(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "\n[[account]]\nname = \"user%d\"\npassword = %q\n", i, slowHash())
	}
	return b.String()
}

// guess sends wrong passwords for an account over one connection after the other, until ctx ends. It counts the 530s.
func guess(ctx context.Context, server, address, account string, guesses *atomic.Int64) {
	for ctx.Err() == nil {
		c, greeting, err := connectFrom(from(address), server)
		if err != nil {
			continue
		}
		stop := context.AfterFunc(ctx, func() { c.Conn.Close() })
		for greeting.Code == 220 {
			r, err := c.Try("USER " + account)
			if err != nil || r.Code != 331 {
				break
			}
			if r, err = c.Try("PASS wrong"); err != nil || r.Code != 530 {
				break
			}
			guesses.Add(1)
		}
		stop()
		c.Conn.Close()
		select { // an attacker, too, has better things to do than to be refused all the time
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// TestAttackPasswordsAreGuessed guesses passwords over hundreds of connections. Users with the right password still log in for the first time, from
// new addresses.
func TestAttackPasswordsAreGuessed(t *testing.T) {
	const accounts = 8
	s := startServer(t, defaults+withSlowHashes(accounts+1))
	logsIn := func(i int) time.Duration {
		started := time.Now()
		c, err := loginFrom(from(fmt.Sprint("127.0.2.", i+1)), s.v4, fmt.Sprint("user", i))
		if err != nil {
			t.Errorf("user%d: %v", i, err)
			return patience
		}
		c.Conn.Close()
		return time.Since(started)
	}
	logsIn(accounts)
	c, began := s.stranger(), time.Now()
	for range 3 { // 0.3, 0.6 and 1.2 s
		c.Want(331, "USER nobody")
		c.Want(530, "PASS guess")
	}
	if took := time.Since(began); took < 2100*time.Millisecond {
		t.Errorf("three wrong passwords took %v", took)
	}
	connections, addresses := count(240, 600), count(24, 60)
	ctx, cancel := context.WithCancel(t.Context())
	var attackers sync.WaitGroup
	var guesses atomic.Int64
	began = time.Now()
	for i := range connections {
		attackers.Go(func() {
			guess(ctx, s.v4, fmt.Sprintf("127.0.1.%d", 1+i%addresses), fmt.Sprint("user", i%accounts), &guesses)
		})
	}
	harness.Await(t, "the attack has begun", func() bool { return guesses.Load() > int64(addresses) })
	var all []time.Duration
	for i := range accounts {
		all = append(all, logsIn(i))
	}
	cancel()
	attackers.Wait()
	took := time.Since(began).Seconds()
	t.Logf("%d first logins took %v; %d connections from %d addresses had %d passwords looked at in %.0f s",
		accounts, all, connections, addresses, guesses.Load(), took)
	// Ten failures are too many for an address; one is forgiven each 30 s.
	if most := int64(addresses) * int64(12+took/30); guesses.Load() > most {
		t.Errorf("%d passwords were looked at, more than %d", guesses.Load(), most)
	}
}
