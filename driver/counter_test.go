package driver

import (
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// counting has counter_lock protect /counter.tsv, or not.
func counting(guarded bool) func(*setup) {
	return func(s *setup) {
		s.rules = []lock.Rule{{Match: "**/*_lock", MaxAge: time.Minute}}
		if guarded {
			s.rules[0].Protection = &lock.Protection{Paths: []string{"$1/$2.tsv"}}
		}
	}
}

// The article's trap, step by step: a holder that is stopped for longer than the age of its lock goes on and
// overwrites what the next holder has written. It is what protects is for, and happens without.
func TestAPausedHolderLosesAnUpdateOnlyWithoutProtection(t *testing.T) {
	for _, c := range []struct {
		name    string
		guarded bool
		want    string
	}{
		{"not protected", false, "1"}, {"protected", true, "2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := start(t, counting(c.guarded))
			s.write("/counter.tsv", "0")
			paused, other := s.as("phoneacc"), s.as("other")
			acknowledged := 0 // by the 226
			add := func(c *conn, read string) {
				n, _ := strconv.Atoi(read)
				if strings.HasPrefix(c.upload("STOR /counter.tsv", strconv.Itoa(n+1)), "226 ") {
					acknowledged++
				}
				c.ask("RMD /counter_lock")
			}
			paused.want("MKD /counter_lock", "257 *")
			read := paused.fetch("RETR /counter.tsv")
			s.pass(time.Minute + time.Second) // SIGSTOP
			for range 2 {
				other.want("MKD /counter_lock", "257 *")
				add(other, other.fetch("RETR /counter.tsv"))
			}
			add(paused, read) // SIGCONT
			s.wantContent("/counter.tsv", c.want)
			if got, _ := strconv.Atoi(c.want); (got == acknowledged) != c.guarded {
				t.Errorf("%d were acknowledged, the counter says %d", acknowledged, got)
			}
		})
	}
}

// perClient is how many increments each client makes.
const perClient = 2

// counter is a client that adds one to a file under its lock, now and then is stopped for longer than the lock's
// age, and now and then is killed.
type counter struct {
	s            *server
	acknowledged atomic.Int64 // increments that some client was told of
}

func (k *counter) work(id int) {
	random := rand.New(rand.NewPCG(uint64(id), 1))
	c := k.s.as("phoneacc")
	c.want("TYPE I", "200 *")
	c.want(fmt.Sprint("SITE LOCK AS client", id), "200 *") // or each would speak for what another one left behind
	for done, tries := 0, 0; done < perClient; {
		if answer := c.ask("MKD /counter_lock"); !strings.HasPrefix(answer, "257 ") {
			if tries++; tries > 20_000 {
				c.t.Errorf("nobody lets go of the lock: %s", answer)
				return
			}
			if strings.Contains(answer, "expires in 0s") { // it was busy when its time was over: the reaper comes again
				k.s.pass(0)
			}
			continue
		}
		tries = 0
		read, reply := c.download("RETR /counter.tsv")
		n, err := strconv.Atoi(read)
		if !strings.HasPrefix(reply, "226 ") || err != nil {
			c.t.Errorf("RETR: %q, %s", read, reply)
			return
		}
		fate := random.IntN(10)
		if fate == 0 { // stopped: somebody has the lock taken away in the meantime
			k.s.pass(time.Minute + time.Second)
		}
		stored, alive := c.tryStore("/counter.tsv", strconv.Itoa(n+1), func() bool {
			switch fate {
			case 1: // stopped in mid-upload
				k.s.pass(time.Minute + time.Second)
			case 2: // killed in mid-upload; its lock goes by age
				c.reset()
				k.s.pass(time.Minute + time.Second)
				return false
			}
			return true
		})
		if !alive {
			c = k.s.as("phoneacc")
			c.want("TYPE I", "200 *")
			c.want(fmt.Sprintf("SITE LOCK AS client%d-%d", id, random.Uint64()), "200 *")
			continue
		}
		if fate == 3 {
			k.s.pass(time.Minute + time.Second)
		}
		c.ask("RMD /counter_lock")
		if stored {
			k.acknowledged.Add(1)
			done++
		}
	}
}

// tryStore uploads and reports whether that was confirmed. In the middle of it, if it comes so far, it asks whether the
// client lives on.
func (c *conn) tryStore(name, content string, middle func() bool) (stored, alive bool) {
	c.t.Helper()
	nc := c.data()
	if !strings.HasPrefix(c.ask("STOR "+name), "150 ") {
		nc.Close()
		return false, true
	}
	io.WriteString(nc, content) // an error shows in the reply
	if !middle() {
		return false, false
	}
	nc.Close()
	return strings.HasPrefix(c.reply(), "226 "), true
}

func TestEveryAcknowledgedIncrementIsThereOnce(t *testing.T) {
	s := start(t, counting(true))
	s.write("/counter.tsv", "0")
	k := &counter{s: s}
	var clients sync.WaitGroup
	for i := range 32 {
		clients.Go(func() { k.work(i) })
	}
	clients.Wait()
	s.wantContent("/counter.tsv", strconv.FormatInt(k.acknowledged.Load(), 10))
	if k.acknowledged.Load() != 32*perClient {
		t.Errorf("%d increments", k.acknowledged.Load())
	}
}
