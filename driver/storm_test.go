package driver

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// lockedWriter lets several goroutines log.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func debugLog(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(&lockedWriter{w: w}, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// In a storm of commands each gets exactly its replies, no lock has two holders and no file a mixture of two uploads.
func TestEveryCommandGetsItsRepliesUnderLoad(t *testing.T) {
	const clients = 50
	for _, directories := range []bool{true, false} {
		t.Run(fmt.Sprintf("directories %t", directories), func(t *testing.T) {
			s := start(t, func(o *setup) { o.directories = directories })
			s.write("/shared", strings.Repeat("-", 10_000))
			length := time.Second
			switch {
			case testing.Short():
				length /= 2
			case directories:
				length *= 2
			}
			w := weather{s: s, end: time.Now().Add(length)}
			var all sync.WaitGroup
			for i := range clients {
				c := s.as([]string{"phoneacc", "other"}[i%2])
				all.Go(func() { w.client(c, i) })
			}
			all.Wait()
			for i := range w.holders {
				if w.holders[i].count != 0 {
					t.Errorf("lock %d is counted %d times after all were given back", i, w.holders[i].count)
				}
			}
			if left, _ := filepath.Glob(filepath.Join(s.root, ".ftplockd-*")); len(left) > 0 {
				t.Errorf("temporaries are left: %q", left)
			}
		})
	}
}

// weather is what the clients of a storm share.
type weather struct {
	s       *server
	end     time.Time
	holders [5]struct {
		sync.Mutex
		count int
	}
}

func (w *weather) client(c *conn, id int) {
	r := rand.New(rand.NewPCG(uint64(id), 1))
	content := strings.Repeat(string(rune('a'+id%26)), 10_000)
	for n := 0; time.Now().Before(w.end) && !c.t.Failed(); n++ {
		switch r.IntN(7) {
		case 0, 1:
			w.hold(c, r.IntN(len(w.holders)))
		case 2:
			c.two("STOR /shared", content, false)
		case 3:
			c.two("STOR /shared", content, true)
		case 4:
			c.two("RETR /shared", "", r.IntN(2) == 0)
		case 5:
			c.two("LIST /", "", r.IntN(2) == 0)
		case 6:
			c.send("ABOR\r\nNOOP\r\n")
			c.play("S: 226 *\nS: 200 OK")
		}
		// A reply too many or too few shows here.
		marker := fmt.Sprintf("M%dX%d", id, n)
		c.want("HELP "+marker, "502 unknown command '"+marker+"'")
	}
}

// hold takes a lock, if it is free, counts its holders and gives it back.
func (w *weather) hold(c *conn, i int) {
	name := fmt.Sprint("/locks/", i)
	r := c.ask("MKD " + name)
	if !strings.HasPrefix(r, "257 ") {
		c.check("MKD", r, "550 "+name+": held by *")
		return
	}
	h := &w.holders[i]
	h.Lock()
	if h.count++; h.count != 1 {
		c.t.Errorf("%s has %d holders", name, h.count)
	}
	h.Unlock()
	h.Lock()
	h.count--
	h.Unlock()
	c.want("RMD "+name, "250 *")
}

// two does a transfer, and with abort says ABOR at some moment: two commands then, with two final replies.
func (c *conn) two(command, content string, abort bool) {
	to := c.port()
	c.send(command + "\r\n")
	nc, err := net.Dial("tcp", to)
	if err != nil {
		c.t.Error(err)
		return
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(patience))
	if abort {
		c.send("ABOR\r\n")
	}
	got := 0
	if content != "" {
		io.WriteString(nc, content) // may fail after ABOR
		nc.(*net.TCPConn).CloseWrite()
	} else {
		b, err := io.ReadAll(nc)
		if err != nil && (!abort || errors.Is(err, os.ErrDeadlineExceeded)) {
			c.t.Errorf("%s: %v", command, err)
		}
		got = len(b)
		if command == "RETR /shared" && strings.Trim(string(b), string(b[:min(len(b), 1)])) != "" {
			c.t.Errorf("a mixture: %.40q", b)
		}
	}
	finals := 1
	if abort {
		finals = 2
	}
	var all []string
	for n := 0; n < finals; {
		r := c.reply()
		all = append(all, r[:3])
		if r[0] != '1' {
			n++
		}
	}
	switch is := strings.Join(all, " "); {
	case !abort && is == "150 226":
		if command == "RETR /shared" && got != 10_000 {
			c.t.Errorf("%d bytes", got)
		}
	case abort && (is == "150 226 226" || is == "150 426 226" || is == "426 226"):
	default:
		c.t.Errorf("%s, abort %t: %s", command, abort, is)
	}
}
