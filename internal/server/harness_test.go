package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// syncBuffer is a log that the test reads while the server writes it.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// running is a server in this process.
type running struct {
	*server
	t    *testing.T
	dir  string
	file string
	log  *syncBuffer
}

func (r *running) configure(text string) {
	r.t.Helper()
	head := "listen = ['127.0.0.1:0']\nroot = '" + r.dir + "/files'\nstate = '" + r.dir + "/state'\n"
	if err := os.WriteFile(r.file, []byte(head+text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// ask sends a request to the control socket.
func (r *running) ask(method, path string, query ...string) (string, error) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 20*time.Second)
	defer cancel()
	values := url.Values{}
	for i := 0; i < len(query); i += 2 {
		values.Set(query[i], query[i+1])
	}
	body, err := Ask(ctx, filepath.Join(r.dir, "state"), method, path+"?"+values.Encode())
	return string(body), err
}

// reload asks for a reload and returns the keys that need a restart.
func (r *running) askReload() (done Reloaded) {
	r.t.Helper()
	body, err := r.ask(http.MethodPost, "/reload")
	if err == nil {
		err = json.Unmarshal([]byte(body), &done)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return done
}

// login opens a session; say sends a line and returns the reply.
func (r *running) login() (say func(line string) string, conn net.Conn) {
	r.t.Helper()
	conn, err := net.DialTimeout("tcp", r.service.Load().ports[0].Addr().String(), 10*time.Second)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	in := textproto.NewReader(bufio.NewReader(conn))
	read := func() string {
		line, err := in.ReadLine()
		if err != nil {
			return "error: " + err.Error()
		}
		return line
	}
	read()
	say = func(line string) string {
		if _, err := conn.Write([]byte(line + "\r\n")); err != nil {
			return "error: " + err.Error()
		}
		return read()
	}
	say("USER ftp")
	if got := say("PASS secret"); !strings.HasPrefix(got, "230 ") {
		r.t.Fatal(got)
	}
	return say, conn
}

// logs waits for a line of the log that has all these words.
func (r *running) logs(words ...string) {
	r.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		for line := range strings.Lines(r.log.String()) {
			if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
				return
			}
		}
	}
	r.t.Fatalf("no line has %q:\n%s", words, r.log)
}

// begin begins an upload over a session and returns its data connection and the reply.
func (r *running) begin(say func(string) string, name string) (data net.Conn, reply string) {
	r.t.Helper()
	var port int
	if _, err := fmt.Sscanf(strings.TrimPrefix(say("EPSV"), "229"), " Entering Extended Passive Mode (|||%d|)", &port); err != nil {
		r.t.Fatal(err)
	}
	data, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { data.Close() })
	return data, say("STOR " + name)
}
