package integration

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

// note is a line of what a chronicler tells: that an operation begins, how it ended, or that it stops itself.
type note struct {
	Seq    int // of the operation
	At     int64
	Ended  bool
	Conn   int
	Verb   locktest.Verb
	Name   string
	Value  int
	Result locktest.Result
	Token  lock.Token
	Stops  bool
}

// now is a clock that all processes share, in nanoseconds.
func now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}

// chronicler is a client that takes locks, reads and writes their files and gives them back, at random, and tells of
// each of its operations before it begins and when it has ended. An owner to it is a connection.
type chronicler struct {
	out     *json.Encoder
	address string
	id      int
	random  *rand.Rand
	stops   bool // it stops itself now and then
	s       *session
	conn    int
	seq     int
	value   int
}

// historyLocks are what chroniclers fight for. Each protects the file of its name.
var historyLocks = []string{"/a_lock", "/b_lock", "/c_lock"}

func fileOf(name string) string { return strings.TrimSuffix(name, "_lock") + ".tsv" }

// chronicle is a chronicler as a process: host:port, its number, a seed, how long, and "stops" or "".
func chronicle(args []string) error {
	id, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	seed, err := strconv.ParseUint(args[2], 10, 64)
	if err != nil {
		return err
	}
	runs, err := time.ParseDuration(args[3])
	if err != nil {
		return err
	}
	c := &chronicler{out: json.NewEncoder(os.Stdout), address: args[0], id: id, random: rand.New(rand.NewPCG(seed, uint64(id))), stops: args[4] == "stops"}
	for end := time.Now().Add(runs); time.Now().Before(end); {
		err := c.round()
		var wrong *told
		if errors.As(err, &wrong) {
			return err
		}
		if err != nil && c.s != nil {
			c.s.conn.Close()
			c.s = nil
		}
		c.pause(10)
	}
	if c.s != nil {
		c.s.conn.Close()
	}
	return nil
}

// told is an error that no network explains.
type told struct{ text string }

func (t *told) Error() string { return t.text }

func (c *chronicler) pause(most int) {
	time.Sleep(time.Duration(c.random.IntN(most*1000)) * time.Microsecond)
}

// hasty is a connection whose owner does not wait long.
type hasty struct{ net.Conn }

const within = 1500 * time.Millisecond

func (h hasty) SetDeadline(time.Time) error { return h.Conn.SetDeadline(time.Now().Add(within)) }
func (h hasty) SetReadDeadline(time.Time) error {
	return h.Conn.SetReadDeadline(time.Now().Add(within))
}

func (c *chronicler) connect() error {
	conn, err := net.DialTimeout("tcp", c.address, within)
	if err != nil {
		return err
	}
	c.conn++
	s := &session{conn: hasty{conn}, r: bufio.NewReader(conn)}
	if _, err = s.readReply(); err == nil {
		for _, line := range []string{"USER " + account, "PASS " + password, "TYPE I"} {
			if _, err = s.try(line); err != nil {
				break
			}
		}
	}
	if err == nil && c.random.IntN(2) == 0 {
		_, err = s.try("SITE WAIT 1")
	}
	if err != nil {
		conn.Close()
		return err
	}
	c.s = s
	return nil
}

// begin and end tell of an operation.
func (c *chronicler) begin(n note) note {
	c.seq++
	n.Seq, n.Conn, n.At = c.seq, c.conn, now()
	c.tell(n)
	return n
}

func (c *chronicler) end(n note, result locktest.Result) {
	n.Ended, n.At, n.Result = true, now(), result
	c.tell(n)
}

func (c *chronicler) tell(n note) {
	if err := c.out.Encode(n); err != nil {
		os.Exit(1) // nobody listens any more
	}
}

// stop stops the process, at times, until somebody has it go on.
func (c *chronicler) stop() {
	if !c.stops || c.random.IntN(12) != 0 {
		return
	}
	c.tell(note{Stops: true})
	_ = unix.Kill(unix.Getpid(), syscall.SIGSTOP)
}

// round is one turn: the lock, its file, or what is to be refused.
func (c *chronicler) round() error {
	if c.s == nil {
		if err := c.connect(); err != nil {
			return err
		}
	}
	name := historyLocks[c.random.IntN(len(historyLocks))]
	switch c.random.IntN(10) {
	case 0:
		return c.give(name)
	case 1:
		return c.store(name)
	case 2, 3:
		return c.retrieve(name)
	}
	held, err := c.take(name)
	if err != nil || !held {
		return err
	}
	c.stop()
	if c.random.IntN(2) == 0 {
		if err := c.retrieve(name); err != nil {
			return err
		}
	}
	for range 1 + c.random.IntN(2) {
		if err := c.store(name); err != nil {
			return err
		}
		c.pause(5)
	}
	c.stop()
	return c.give(name)
}

// keptFrom matches refusals that say nothing about who holds the lock.
var keptFrom = regexp.MustCompile("others came earlier|deadlock|kept back")

func (c *chronicler) take(name string) (held bool, err error) {
	n := c.begin(note{Verb: locktest.MKD, Name: name})
	r, err := c.s.try("MKD " + name)
	switch {
	case err != nil:
		return false, err
	case r.code == 257:
		n.Token = lock.Token(token(r))
		c.end(n, locktest.Done)
		return true, nil
	case r.code == 550 && strings.Contains(r.text, "held by"):
		c.end(n, locktest.Refused)
	case r.code == 550 && keptFrom.MatchString(r.text):
		c.end(n, locktest.Queued)
	case r.code < 500:
		return false, fmt.Errorf("MKD: %v", r) // nobody knows
	default:
		return false, &told{fmt.Sprintf("MKD %s: %v", name, r)}
	}
	return false, nil
}

func (c *chronicler) give(name string) error {
	n := c.begin(note{Verb: locktest.RMD, Name: name})
	r, err := c.s.try("RMD " + name)
	switch {
	case err != nil:
		return err
	case r.code == 250:
		c.end(n, locktest.Done)
	case r.code == 550:
		c.end(n, locktest.Refused)
	default:
		return fmt.Errorf("RMD: %v", r)
	}
	return nil
}

// historyText is a file that holds a value: so many lines of it, so that a part of it shows.
func historyText(value int) []byte { return bytes.Repeat(fmt.Appendf(nil, "%019d\n", value), 300) }

// store uploads in two pieces, between which the process may be stopped.
func (c *chronicler) store(name string) error {
	c.value++
	n := c.begin(note{Verb: locktest.STOR, Name: name, Value: c.id*1_000_000 + c.value})
	err := c.upload("STOR "+fileOf(name), historyText(n.Value))
	var no *refused
	switch {
	case err == nil:
		c.end(n, locktest.Done)
	case errors.As(err, &no) && (no.reply.code == 550 || no.reply.code == 553):
		c.end(n, locktest.Refused)
	default:
		return err
	}
	return nil
}

func (c *chronicler) upload(line string, content []byte) error {
	// Or an upload that is cut off in the network would count as one that has come to its end.
	if r, err := c.s.try(fmt.Sprint("ALLO ", len(content))); err != nil || r.code != 200 {
		return fmt.Errorf("ALLO: %v, %w", r, err)
	}
	data, err := c.open(line)
	if err != nil {
		return err
	}
	defer data.Close()
	if _, err := data.Write(content[:len(content)/2]); err != nil {
		return err
	}
	c.stop()
	if _, err := data.Write(content[len(content)/2:]); err != nil {
		return err
	}
	data.Close()
	return c.s.done()
}

func (c *chronicler) open(line string) (net.Conn, error) {
	data, err := c.s.open(line)
	if err != nil {
		return nil, err
	}
	return data, data.SetDeadline(time.Now().Add(within))
}

func (c *chronicler) retrieve(name string) error {
	n := c.begin(note{Verb: locktest.RETR, Name: name})
	data, err := c.open("RETR " + fileOf(name))
	if err != nil {
		return err
	}
	content, err := io.ReadAll(data)
	data.Close()
	if err == nil {
		err = c.s.done()
	}
	if err != nil {
		return err
	}
	if len(content) == 0 {
		return errors.New("cut off")
	}
	n.Value, err = strconv.Atoi(string(content[:min(19, len(content))]))
	switch whole := historyText(n.Value); {
	case len(content) < len(whole) && (len(content) < 19 || bytes.HasPrefix(whole, content)):
		return errors.New("cut off") // in the network, which an end of the data looks like
	case err != nil || !bytes.Equal(content, whole):
		return &told{fmt.Sprintf("torn: %d bytes, %.40q", len(content), content)}
	}
	c.end(n, locktest.Done)
	return nil
}
