package integration

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

// historian is a client that takes and gives back locks at random, now and then without waiting for the reply,
// and notes what it was told. Its nonce makes it the same owner in its next connection.
type historian struct {
	owner   string
	address string
	start   time.Time
	ops     []porcupine.Operation
	id      int
	session *session
	unsure  map[string]bool // names that it may hold because a reply was lost
	err     error
}

// never is the return of an operation whose reply never came.
const never = int64(1) << 62

func (h *historian) now() int64 { return time.Since(h.start).Nanoseconds() }

func (h *historian) note(verb locktest.Verb, in locktest.Input, call, ret int64, out locktest.Output) {
	in.Verb, in.Owner = verb, h.owner
	h.ops = append(h.ops, porcupine.Operation{ClientId: h.id, Input: in, Call: call, Output: out, Return: ret})
}

func (h *historian) connect() error {
	s, err := login(h.address, account)
	if err != nil {
		return err
	}
	if r, err := s.try("SITE LOCK AS " + h.owner); err != nil || r.code != 200 {
		return fmt.Errorf("SITE LOCK AS: %v, %w", r, err)
	}
	h.session = s
	return nil
}

// lose sends a command and cuts the connection instead of reading the reply.
func (h *historian) lose(verb locktest.Verb, in locktest.Input) error {
	call := h.now()
	err := h.session.send(string(verb) + " " + string(in.Name))
	h.session.conn.Close()
	h.note(verb, in, call, never, locktest.Output{Result: locktest.Unknown})
	if verb == locktest.MKD {
		// The server takes a grant back that it could not deliver: as if the client had given it back.
		h.note(locktest.RMD, in, call, never, locktest.Output{Result: locktest.Unknown})
	}
	h.unsure[string(in.Name)] = true
	return errors.Join(err, h.connect())
}

func (h *historian) do(verb locktest.Verb, in locktest.Input) (held bool, err error) {
	call := h.now()
	r, err := h.session.try(string(verb) + " " + string(in.Name))
	if err != nil {
		return false, err
	}
	out := locktest.Output{Result: locktest.Done}
	switch {
	case r.code == 550 && (strings.Contains(r.text, "others came earlier") || strings.Contains(r.text, "deadlock")):
		out.Result = locktest.Queued
	case r.code == 550:
		out.Result = locktest.Refused
	case r.code/100 != 2:
		return false, fmt.Errorf("%s %s: %v", verb, in.Name, r)
	case verb == locktest.MKD:
		_, number, _ := strings.Cut(r.text, "token ")
		if _, err := fmt.Sscan(number, &out.Token); err != nil {
			return false, fmt.Errorf("%v: %w", r, err)
		}
	}
	h.note(verb, in, call, h.now(), out)
	return out.Result == locktest.Done && verb == locktest.MKD, nil
}

// locks are those that the historians fight for.
var locks = []locktest.Input{{Name: "/locks/a"}, {Name: "/locks/b"}, {Name: "/locks/c"}}

// run does so many operations: takes a lock that it does not have, gives back what it has or may have.
func (h *historian) run(operations int) {
	r := rand.New(rand.NewPCG(uint64(h.id), 7))
	held := make(map[string]bool)
	for range operations {
		in := locks[r.IntN(len(locks))]
		name := string(in.Name)
		verb := locktest.MKD
		if held[name] || h.unsure[name] {
			verb = locktest.RMD
		}
		if r.IntN(12) == 0 {
			h.err = h.lose(verb, in)
			held[name] = false
		} else {
			held[name], h.err = h.do(verb, in)
			h.unsure[name] = false
		}
		if h.err != nil {
			return
		}
	}
	h.session.conn.Close()
}

func TestHistoriesOverTheNetworkAreLinearizable(t *testing.T) {
	t.Parallel()
	for _, directories := range []string{"true", "false"} {
		t.Run("directories="+directories, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, "[locks]\ndirectories = "+directories+
				"\n[[lock]]\nmatch = \"/locks/**\"\nmax_age = \"1h\"\nrelease = \"session\"\n")
			start := time.Now()
			var all sync.WaitGroup
			historians := make([]*historian, 8)
			for i := range historians {
				h := &historian{owner: fmt.Sprint("client", i), id: i, address: s.v4, start: start, unsure: make(map[string]bool)}
				historians[i] = h
				if err := h.connect(); err != nil {
					t.Fatal(err)
				}
				all.Go(func() { h.run(count(80, 1000)) })
			}
			all.Wait()
			checkHistory(t, historians)
		})
	}
}

func checkHistory(t *testing.T, historians []*historian) {
	t.Helper()
	var history []porcupine.Operation
	results := make(map[locktest.Result]int)
	for _, h := range historians {
		if h.err != nil {
			t.Error(h.err)
		}
		history = append(history, h.ops...)
	}
	for _, op := range history {
		results[op.Output.(locktest.Output).Result]++
	}
	for _, kind := range []locktest.Result{locktest.Done, locktest.Refused, locktest.Unknown} {
		if results[kind] < 10 {
			t.Errorf("%d operations were %s: too few to prove anything", results[kind], kind)
		}
	}
	if got := porcupine.CheckOperationsTimeout(locktest.Model(), history, 30*time.Second); got != porcupine.Ok {
		t.Errorf("the history of %d operations is not linearizable: %s", len(history), got)
	}
}
