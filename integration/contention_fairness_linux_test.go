package integration

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// The article's clients try, and sleep three seconds if they were refused. Here all times are a twentieth: the sleep,
// a job of a second, and queue_hold.
const (
	pollEvery  = 150 * time.Millisecond
	jobTakes   = 50 * time.Millisecond
	scaledHold = 750 * time.Millisecond
	fairFor    = 75 * time.Second
	pollers    = 200 // at once; one in ten dies in the queue
)

// poller is a client that wants the lock again and again.
type poller struct {
	c       *session
	lock    string
	dies    int             // in its first wait, after so many tries; 0: never
	since   time.Time       // when it began to wait
	waiting bool            // it waits since then
	waits   []time.Duration // from the first try to the 257
	err     error
}

func (p *poller) run(end time.Time) {
	defer p.c.conn.Close()
	for time.Now().Before(end) {
		if !p.wait(end) {
			return
		}
		time.Sleep(jobTakes)
		if r, err := p.c.try("RMD " + p.lock); err != nil || r.code != 250 {
			p.err = fmt.Errorf("RMD: %v, %v", r, err)
			return
		}
		time.Sleep(pollEvery) // it does not snatch back what it gave away
	}
}

// wait polls until the lock is had.
func (p *poller) wait(end time.Time) bool {
	p.since, p.waiting = time.Now(), true
	for tries := 1; time.Now().Before(end); tries++ {
		r, err := p.c.try("MKD " + p.lock)
		switch {
		case err != nil || r.code != 257 && r.code != 550:
			p.err = fmt.Errorf("MKD: %v, %v", r, err)
			return false
		case p.dies == tries:
			if r.code == 257 { // it was quicker than it was to die
				_, p.err = p.c.try("RMD " + p.lock)
			}
			return false
		case r.code == 257:
			p.waits, p.waiting = append(p.waits, time.Since(p.since)), false
			return true
		}
		time.Sleep(pollEvery)
	}
	return false
}

// fairness has the pollers loose and tells how the waiting was shared.
func fairness(t *testing.T, name, lock string, connect func() *session) (worst float64) {
	t.Helper()
	var all []*poller
	for i := range pollers {
		p := &poller{c: connect(), lock: lock}
		if i%10 == 0 {
			p.dies = 3 + i/10%4
		}
		all = append(all, p)
	}
	begun := time.Now()
	end := begun.Add(fairFor)
	var running sync.WaitGroup
	for i, p := range all {
		running.Go(func() {
			time.Sleep(time.Duration(i) * pollEvery / pollers)
			p.run(end)
		})
	}
	running.Wait()
	return judge(t, name, all, begun, end)
}

// judge compares each wait with its fair share, which is the time in which every client that lives could have had the
// lock once: their number times what a turn took, all in all. A wait that was not over at the end counts with what it had come to.
func judge(t *testing.T, name string, all []*poller, begun, end time.Time) (worst float64) {
	t.Helper()
	var waits []time.Duration
	turns, living, never, again := 0, 0, 0, 0
	for _, p := range all {
		if p.err != nil {
			t.Fatal(name, ": ", p.err)
		}
		if p.dies > 0 {
			continue
		}
		living++
		turns += len(p.waits)
		waits = append(waits, p.waits...)
		if p.waiting {
			waits = append(waits, end.Sub(p.since))
		}
		if len(p.waits) == 0 {
			never++
		}
	}
	share := time.Duration(living) * end.Sub(begun) / time.Duration(max(turns, 1))
	for _, w := range waits {
		if w > 2*share {
			again++
		}
	}
	p50, p99, most := quantiles(waits)
	worst = float64(most) / float64(share)
	t.Logf("%s: %d turns in %v, a fair share is %v; waits: median %v, p99 %v, longest %v, %.2f times the fair share; %d of %d clients never had it, %d waits were longer than twice the share",
		name, turns, end.Sub(begun), share.Round(time.Millisecond), p50.Round(time.Millisecond), p99.Round(time.Millisecond),
		most.Round(time.Millisecond), worst, never, living, again)
	return worst
}

func TestFigureContentionFairness(t *testing.T) {
	figure(t)
	t.Run("ftplockd", func(t *testing.T) {
		s := startServer(t, hour+fmt.Sprintf("queue = \"fair\"\nqueue_hold = %q\n", scaledHold))
		worst := fairness(t, "ftplockd", "/locks/job", func() *session { return s.session(account) })
		if worst > 2 && !raceEnabled {
			t.Errorf("a client waited %.2f times its fair share", worst)
		}
	})
	t.Run("vsftpd", func(t *testing.T) {
		address := startPeer(t, "vsftpd", false).Address
		fairness(t, "vsftpd", "/pub/job", func() *session {
			c, _, err := connect(address)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.conn.Close() })
			c.t = t
			c.want(331, "USER anonymous")
			c.want(230, "PASS x")
			return c
		})
	})
}
