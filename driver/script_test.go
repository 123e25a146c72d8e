package driver

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// scene plays scripts. Each line is one of
//
//	a MKD /x => 257 *    a client, and a line of harness.Session.Play
//	- pass 7m            an action or a check on the server, see host
//	# a comment
//
// A client logs in at its first line: a, a2 and a3 as phoneacc, b and b2 as other, the others as the account of their name.
type scene struct {
	*server
	t       *testing.T
	clients map[string]*conn
}

// play plays a script on a server.
func (s *server) play(t *testing.T, script string) {
	t.Helper()
	p := scene{s, t, make(map[string]*conn)}
	for line := range strings.Lines(script) {
		line = strings.Trim(line, "\n\t ")
		who, rest, _ := strings.Cut(line, " ")
		switch {
		case line == "" || who == "#":
		case who == "-":
			p.host(line, strings.Fields(rest))
		default:
			p.as(who).play(rest)
		}
		if t.Failed() {
			t.Fatalf("at: %s", line)
		}
	}
}

// A line of a script fails if the server does not reply as it says.
func TestALineOfAScriptFails(t *testing.T) {
	s := start(t)
	s.write("/f", "x")
	c := s.as("phoneacc")
	for _, line := range []string{
		"NOOP => 201 *", "NOOP => 200 OK?", "NOOP", "SIZE /f => 213 *#2", "MLST /f => 250 *", "MLST /f => 250-*\\n251 *",
		"RETR /f => 226 * >>> y", "RETR /f => 226 *", "STOR /none/f <<< x => 226 *", "STOR /none/f <<< x ...", "RETR /none => 226 *",
	} {
		if c.Play(line) == nil {
			t.Errorf("no error: %s", line)
		}
	}
	c.play("STOR /f <<< y ...")
	if c.Play("=> 426 *") == nil {
		t.Error("no error: the reply to an upload is 226")
	}
}

// plays plays a script on a new server.
func plays(t *testing.T, script string, changes ...func(*setup)) {
	t.Helper()
	start(t, changes...).play(t, script)
}

// inBothModes plays a script with directories for locks, and without.
func inBothModes(t *testing.T, script string, changes ...func(*setup)) {
	t.Helper()
	eachMode(t, func(t *testing.T, s *server) { t.Helper(); s.play(t, script) }, changes...)
}

func eachMode(t *testing.T, test func(t *testing.T, s *server), changes ...func(*setup)) {
	t.Helper()
	t.Run("directories", func(t *testing.T) { t.Helper(); test(t, start(t, changes...)) })
	t.Run("no directories", func(t *testing.T) { t.Helper(); test(t, start(t, append(slices.Clone(changes), plainLocks)...)) })
}

// as returns the client of that name. It logs in if it is new.
func (p *scene) as(name string) *conn {
	p.t.Helper()
	if p.clients[name] == nil {
		account := strings.TrimRight(name, "0123456789")
		account = cmp.Or(map[string]string{"a": "phoneacc", "b": "other"}[account], account)
		c := p.server.as(account)
		c.T = p.t
		p.clients[name] = c
	}
	return p.clients[name]
}

// host plays an action or a check on the server.
func (p *scene) host(line string, words []string) {
	p.t.Helper()
	text := harness.Unescape(strings.Join(words[min(2, len(words)):], " "))
	argument := append(words, "", "")
	duration := func() time.Duration {
		d, err := time.ParseDuration(argument[1])
		if err != nil {
			p.t.Fatalf("%s: %v", line, err)
		}
		return d
	}
	switch words[0] {
	case "pass": // advance the clock, and end the locks that are due
		p.pass(duration())
	case "late": // advance the clock only
		p.clock.Advance(duration())
	case "write": // a file
		p.write(argument[1], text)
	case "mkdir":
		p.mkdir(argument[1])
	case "link": // name, target
		p.link(argument[2], argument[1])
	case "rename": // on the host
		if err := os.Rename(filepath.Join(p.root, argument[1]), filepath.Join(p.root, argument[2])); err != nil {
			p.t.Fatal(err)
		}
	case "remove": // on the host, the files that a pattern matches
		for _, name := range p.glob(argument[1]) {
			if err := os.RemoveAll(name); err != nil {
				p.t.Error(err)
			}
		}
	case "age": // set the age of the files that a pattern matches
		d, err := time.ParseDuration(argument[2])
		for _, name := range p.glob(argument[1]) {
			at := p.clock.Now().Wall.Add(-d)
			if err = cmp.Or(err, os.Chtimes(name, at, at)); err != nil {
				p.t.Error(err)
			}
		}
	case "directories": // turned on at the next restart
		p.setup.directories = true
	case "file": // the content of a file
		p.wantContent(argument[1], text)
	case "held", "free": // the state of a lock
		if p.held(lock.Name(argument[1])) != (words[0] == "held") {
			p.t.Errorf("not true: %s", line)
		}
	case "granted": // a lock, soon
		p.until(line, func() bool { return p.held(lock.Name(argument[1])) })
	case "freed": // a lock, soon
		p.until(line, func() bool { return !p.held(lock.Name(argument[1])) })
	case "waiting": // the length of a queue, soon
		p.until(line, func() bool {
			status, _ := p.table.Get(lock.Name(argument[1]))
			return fmt.Sprint(max(status.Waiting, len(p.table.Queue(lock.Name(argument[1]))))) == argument[2]
		})
	case "moving": // the number of transfers with a data connection, soon
		n, _ := strconv.Atoi(argument[1])
		p.moving(n)
	case "break": // by an administrator
		p.as("boss").Breaks(argument[1])
	case "close", "reset", "leave", "quit": // a client
		a := p.clients[argument[1]]
		delete(p.clients, argument[1])
		switch words[0] {
		case "close":
			a.Conn.Close()
		case "reset":
			a.reset()
		case "leave": // without reading
			a.TCP.CloseWrite()
			a.TCP.Close()
		default:
			a.want("QUIT", "221 *")
			a.ended()
		}
	case "alone": // all sessions end
		for _, name := range slices.Sorted(maps.Keys(p.clients)) {
			p.clients[name].Conn.Close()
		}
		clear(p.clients)
		p.alone()
	case "restart": // the server, which takes some time
		clear(p.clients)
		p.restart(duration())
	case "suspend", "resume": // the server
		p.suspended.Store(words[0] == "suspend")
	case "sweep":
		if err := p.driver.Sweep(p.t.Context()); err != nil {
			p.t.Error(err)
		}
	case "left": // all leftovers: "lock file content, ..."
		p.wantLeftovers(strings.ReplaceAll(strings.Join(words[1:], " "), ", ", "\n"))
	default:
		p.t.Fatalf("not a line of a script: %s", line)
	}
}

// glob returns the files on disk that a pattern matches. Without any, it fails the test.
func (p *scene) glob(pattern string) []string {
	p.t.Helper()
	found, err := filepath.Glob(filepath.Join(p.root, pattern))
	if err != nil || len(found) == 0 {
		p.t.Errorf("no file matches %s: %v", pattern, err)
	}
	return found
}
