//go:build unix

package harness

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

// Client takes locks, reads and writes their files and releases them, at random, and records it. Each of its connections is an owner.
type Client struct {
	ID     int
	Random *rand.Rand
	Record *Record
	Login  func(owner string) (*Session, error)              // opens a session, for binary transfers
	Boss   func(of *Session, owner string) (*Session, error) // opens an administrator's at the same server; nil: it breaks no locks
	Stop   func() error                                      // is called where a stop of the client does most harm; an error ends the connections. nil: no call
	Cut    bool                                              // the network cuts: a part of a file may be all that is read

	s     *Session
	conn  int
	seq   int
	value int
}

// Run works until over returns true.
func (c *Client) Run(over func() bool) {
	defer c.leave()
	for !over() {
		if err := c.round(); err != nil {
			c.leave()
		}
		time.Sleep(time.Duration(c.Random.IntN(10_000)) * time.Microsecond)
	}
}

func (c *Client) leave() {
	if c.s != nil {
		c.s.Conn.Close()
		c.s = nil
	}
}

func (c *Client) stop() error {
	if c.Stop == nil {
		return nil
	}
	return c.Stop()
}

func (c *Client) owner() string { return fmt.Sprintf("%d.%d", c.ID, c.conn) }

func (c *Client) connect() (err error) {
	c.conn++
	if c.s, err = c.Login(c.owner()); err != nil {
		c.s = nil
		return err
	}
	if c.Random.IntN(2) == 0 {
		_, err = c.s.Ask("SITE WAIT 1")
	}
	return err
}

// round acquires a lock and uses its file, or sends a command without the lock.
func (c *Client) round() error {
	if c.s == nil {
		if err := c.connect(); err != nil {
			return err
		}
	}
	name := HistoryLocks[c.Random.IntN(len(HistoryLocks))]
	switch kind := c.Random.IntN(12); {
	case kind == 0:
		return c.give(name)
	case kind == 1:
		return c.store(name)
	case kind <= 3:
		return c.retrieve(name)
	case kind == 4 && c.Boss != nil:
		return c.breakLock("/b_lock") // or one would be held for ever when its holder is gone
	}
	held, err := c.take(name)
	if err != nil || !held {
		return err
	}
	if err := c.stop(); err != nil {
		return err
	}
	if c.Random.IntN(2) == 0 {
		if err := c.retrieve(name); err != nil {
			return err
		}
	}
	for range 1 + c.Random.IntN(2) {
		if err := c.store(name); err != nil {
			return err
		}
	}
	if err := c.stop(); err != nil {
		return err
	}
	if c.Random.IntN(20) == 0 {
		return errors.New("it goes without giving the lock back")
	}
	return c.give(name)
}

func (c *Client) begin(o Op) *Op {
	c.seq++
	o.Seq, o.Client = c.seq, c.ID
	if o.Owner == "" {
		o.Owner = c.owner()
	}
	return c.Record.Begin(o)
}

// keptFrom matches refusals that do not name a holder.
var keptFrom = regexp.MustCompile("others came earlier|cannot be acquired")

// delayed matches the ends of waits for a free lock.
var delayed = regexp.MustCompile("waited .*: (its (files|directory)|the server could not record a grant)")

// refusedFor reports whether an error is a permanent refusal.
func refusedFor(err error) bool {
	var no *Refused
	return errors.As(err, &no) && no.Reply.Code >= 500
}

// unknown returns the error of an operation without a known outcome, or nil if the server replied that it changed nothing.
func (c *Client) unknown(o *Op, err error) error {
	var no *Refused
	if errors.As(err, &no) && no.Reply.Code == 451 && strings.Contains(no.Reply.Text, "nothing was changed") {
		c.Record.Nothing(o)
		time.Sleep(20 * time.Millisecond)
		return nil
	}
	return err
}

func (c *Client) take(name string) (held bool, err error) {
	o := c.begin(Op{Verb: locktest.MKD, Name: name})
	r, err := c.s.Try("MKD " + name)
	switch {
	case err != nil:
		return false, err
	case r.Code == 257:
		o.Token = lock.Token(Token(r))
		c.Record.End(o, locktest.Done)
		return true, nil
	case r.Code == 550 && strings.Contains(r.Text, "held by"):
		c.Record.End(o, locktest.Refused)
	case r.Code == 550 && keptFrom.MatchString(r.Text):
		c.Record.End(o, locktest.Queued)
	case r.Code == 550 && strings.Contains(r.Text, "the wait ended: another command came, or the session ends"): // the server ends
		c.Record.Nothing(o)
	case r.Code == 550 && delayed.MatchString(r.Text): // the lock is free, and an upload under the last hold waits for etcd
		c.Record.Nothing(o)
	case r.Code >= 500:
		c.Record.Fail("MKD %s: %v", name, r)
	default:
		return false, c.unknown(o, &Refused{r})
	}
	return false, nil
}

func (c *Client) give(name string) error {
	o := c.begin(Op{Verb: locktest.RMD, Name: name})
	r, err := c.s.Try("RMD " + name)
	switch {
	case err != nil:
		return err
	case r.Code == 250:
		c.Record.End(o, locktest.Done)
	case r.Code == 550:
		c.Record.End(o, locktest.Refused)
	default:
		return c.unknown(o, &Refused{r})
	}
	return nil
}

// store uploads in two pieces.
func (c *Client) store(name string) error {
	c.value++
	o := c.begin(Op{Verb: locktest.STOR, Name: name, Value: c.ID*1_000_000 + c.value})
	err := c.upload(FileOf(name), HistoryText(o.Value))
	var no *Refused
	switch {
	case err == nil:
		c.Record.End(o, locktest.Done)
	case errors.As(err, &no) && (no.Reply.Code == 550 || no.Reply.Code == 553):
		c.Record.End(o, locktest.Refused)
	default:
		return c.unknown(o, err)
	}
	return nil
}

func (c *Client) upload(path string, content []byte) error {
	// Otherwise an upload that the network cuts off would look complete.
	if _, err := c.s.Ask(fmt.Sprint("ALLO ", len(content))); err != nil {
		return err
	}
	data, err := c.s.Open("STOR " + path)
	if err != nil {
		return err
	}
	defer data.Close()
	if _, err := data.Write(content[:len(content)/2]); err != nil {
		return err
	}
	if err := c.stop(); err != nil {
		return err
	}
	if _, err := data.Write(content[len(content)/2:]); err != nil {
		return err
	}
	data.Close()
	return c.s.Done()
}

func (c *Client) retrieve(name string) error {
	o := c.begin(Op{Verb: locktest.RETR, Name: name})
	data, err := c.s.Open("RETR " + FileOf(name))
	if err != nil {
		return err
	}
	content, err := io.ReadAll(data)
	data.Close()
	if err = errors.Join(c.s.Done(), err); err != nil {
		return err
	}
	o.Value, err = strconv.Atoi(string(content[:min(19, len(content))]))
	switch whole := HistoryText(o.Value); {
	case c.Cut && len(content) < len(whole) && (len(content) < 19 || bytes.HasPrefix(whole, content)):
		return errors.New("cut off") // in the network, which an end of the data looks like
	case err != nil || !bytes.Equal(content, whole):
		c.Record.Fail("torn: %d bytes, %.40q", len(content), content)
		return nil
	}
	c.Record.End(o, locktest.Done)
	return nil
}

// breakLock breaks the lock as an administrator.
func (c *Client) breakLock(name string) error {
	owner := "boss of " + c.owner()
	boss, err := c.Boss(c.s, owner)
	if err != nil {
		return err
	}
	defer boss.Conn.Close()
	found, err := boss.Try("SITE LOCK BREAK " + name)
	if err != nil {
		return err
	}
	line := breaking(name, found)
	if line == "" {
		return nil // nobody holds it
	}
	o := c.begin(Op{Owner: owner, Verb: locktest.BREAK, Name: name})
	r, err := boss.Try(line)
	switch {
	case err != nil:
		return nil
	case r.Code == 200:
		c.Record.End(o, locktest.Done)
	case r.Code >= 500: // it has been given back meanwhile
		c.Record.Nothing(o)
	default:
		_ = c.unknown(o, &Refused{r})
	}
	return nil
}
