package locksmith

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scripted is a server that follows a transcript for each connection. Its lines are
//
//	> MKD /a    the line that the client must send; one * matches any text
//	< 550 no    the server sends this line
//	! 20s       the server waits
//	drop        the server closes the connection, as at the end of the transcript
//	hang        the server stops reading and sending
//	data abc    the server sends this text on the next data connection
//	stored x    the client must have sent this text on the next data connection
//
// A connection without a transcript is refused.
type scripted struct {
	t     *testing.T
	tasks sync.WaitGroup

	mu      sync.Mutex
	scripts []string
	data    net.Conn // our end of the data connection
	lines   []moment // of clients
}

type moment struct {
	line string
	at   time.Time
}

const controlAddress = "10.0.0.1:21"

// hello is the login on a server with the features; each line of them begins with a blank.
func hello(features string) string {
	feat := "> FEAT\n< 211-Features:\n" + features + "< 211 End\n"
	return "< 220 ready\n> USER me\n< 331 password\n> PASS pw\n< 230 in\n" + feat +
		"> TYPE I\n< 200 ok\n> PWD\n< 257 \"/\" is here\n" + feat
}

// asLocks is the beginning of a connection to ftplockd, asOthers of one to a server without facts of locks.
func asLocks() string {
	return hello("<  SITE LOCK FACTS type;\n<  SITE LOCKS\n<  SITE WAIT\n<  STOR STAGED\n") +
		"> SITE LOCK AS job\n< 200 the same job\n> SITE WAIT 0\n< 200 no waiting\n"
}

// graced is the beginning of a connection to ftplockd that ends locks with their connection.
func graced() string {
	return strings.ReplaceAll(strings.Replace(asLocks(), "> SITE WAIT 0", "> SITE LOCK DISCONNECT RELEASE 15\n< 200 ok\n> SITE WAIT 0", 1), "<  SITE LOCKS\n", "<  SITE LOCK DISCONNECT\n<  SITE LOCKS\n")
}

func asOthers() string {
	return hello("<  MDTM\n")
}

// info is a request for the facts of a held lock, and the reply.
func info(name, token, facts string) string {
	return "> SITE LOCK INFO " + name + "\n< 211-Lock " + name + "\n<  held by a text for people\n<  type=lock;token=" + token + ";" + facts + "waiting=0;mkd=later; " + name + "\n< 211 End\n"
}

// grant is a granted MKD, and the request for facts after it.
func grant(token, facts string) string {
	return "> MKD /a\n< 257 \"/a\" has words for people\n" + info("/a", token, "mine=session;"+facts)
}

// adopt is the adoption of the lock on a new connection.
func adopt(name, from, to string) string {
	return info(name, from, "mine=job;") + "> MKD " + name + "\n< 257 ok\n" + info(name, to, "mine=session;adopted="+from+";left=360.000;age=360.000;")
}

const bye = "> QUIT\n< 221 bye\n"

// options are for the lock /a on the server.
func (s *scripted) options() wish {
	return wish{
		Config: Config{Address: controlAddress, User: "me", Password: "pw", DialContext: s.dial, Timeout: 30 * time.Second, JobKey: "job", Check: time.Hour},
		Path:   "/a",
	}
}

// wish describes a lock of a test.
type wish struct {
	Config Config
	Path   string
	Options
	TryOnce bool
}

func (w wish) acquire(ctx context.Context) (*Lock, error) {
	if w.TryOnce {
		return TryAcquire(ctx, w.Config, w.Path, w.Options)
	}
	return Acquire(ctx, w.Config, w.Path, w.Options)
}

func (s *scripted) dial(ctx context.Context, _, address string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	s.mu.Lock()
	defer s.mu.Unlock()
	if address != controlAddress {
		if host, _, _ := net.SplitHostPort(address); host != "10.0.0.1" { // of the Config, since the caller dials
			s.t.Errorf("the data connection leads to %s", address)
		}
		s.data = ours
		return theirs, nil
	}
	if len(s.scripts) == 0 {
		return nil, errors.New("connection refused")
	}
	script := s.scripts[0]
	s.scripts = s.scripts[1:]
	s.tasks.Go(func() {
		defer ours.Close()
		s.follow(ours, script)
	})
	return theirs, nil
}

func (s *scripted) follow(c net.Conn, script string) {
	lines := bufio.NewReader(c)
	for step := range strings.Lines(script) {
		step = strings.TrimSuffix(step, "\n")
		switch {
		case step == "":
		case step == "drop":
			return
		case step == "hang":
			for {
				line, err := lines.ReadString('\n')
				if err != nil {
					return
				}
				s.note(strings.TrimRight(line, "\r\n"))
			}
		case strings.HasPrefix(step, "< "):
			if _, err := io.WriteString(c, step[2:]+"\r\n"); err != nil {
				s.t.Errorf("the client does not read %q: %v", step[2:], err)
				return
			}
		case strings.HasPrefix(step, "! "):
			d, err := time.ParseDuration(step[2:])
			if err != nil {
				panic(err)
			}
			time.Sleep(d)
		case strings.HasPrefix(step, "data "):
			d := s.takeData()
			_, _ = io.WriteString(d, step[5:])
			d.Close()
		case strings.HasPrefix(step, "stored "):
			d := s.takeData()
			got, _ := io.ReadAll(d)
			d.Close()
			if string(got) != step[7:] {
				s.t.Errorf("stored %q, not %q", got, step[7:])
			}
		default:
			line, err := lines.ReadString('\n')
			line = strings.TrimRight(line, "\r\n")
			s.note(line)
			if err != nil || !fits(line, step[2:]) {
				s.t.Errorf("the client sent %q (%v), want %q", line, err, step[2:])
				return
			}
		}
	}
}

func (s *scripted) takeData() net.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.data == nil {
		panic("there is no data connection")
	}
	d := s.data
	s.data = nil
	return d
}

func (s *scripted) note(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, moment{line, time.Now()})
}

// times returns the times at which clients sent the line.
func (s *scripted) times(line string) []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []time.Time
	for _, m := range s.lines {
		if m.line == line {
			all = append(all, m.at)
		}
	}
	return all
}

func fits(line, pattern string) bool {
	before, after, any := strings.Cut(pattern, "*")
	if !any {
		return line == pattern
	}
	return len(line) >= len(before)+len(after) && strings.HasPrefix(line, before) && strings.HasSuffix(line, after)
}

// end waits for the server. All connections must have been made.
func (s *scripted) end() {
	s.t.Helper()
	s.tasks.Wait()
	if len(s.scripts) > 0 {
		s.t.Errorf("%d connections were not made", len(s.scripts))
	}
}

// inBubble runs a test with a scripted server in a bubble of synctest.
func inBubble(t *testing.T, scripts []string, run func(t *testing.T, s *scripted)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{t: t, scripts: scripts}
		run(t, s)
		s.end()
	})
}

func mustAcquire(t *testing.T, o wish) *Lock {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	l, err := o.acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// oneLine checks the form of an error.
func oneLine(t *testing.T, err error) {
	t.Helper()
	if err != nil && strings.ContainsAny(err.Error(), "\r\n") {
		t.Errorf("an error of several lines: %q", err)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) && err.Error() == os.ErrDeadlineExceeded.Error() {
		t.Errorf("an error without a description: %q", err)
	}
}

// closeData closes the server's end of a data connection that the transcript left open.
func (s *scripted) closeData() { s.takeData().Close() }
