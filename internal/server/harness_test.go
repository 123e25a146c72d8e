package server

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// running is a server in this process.
type running struct {
	*server
	t    *testing.T
	dir  string
	file string
	log  *harness.LogBuffer
}

// newRunning prepares a server without starting it.
func newRunning(t *testing.T) *running {
	t.Setenv("FTPLOCKD_PASSWORD", harness.Password)
	dir := t.TempDir()
	return &running{t: t, dir: dir, file: filepath.Join(dir, "ftplockd.toml"), log: harness.NewLogBuffer()}
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
	body, err := Request(ctx, filepath.Join(r.dir, "state"), method, path+"?"+values.Encode())
	return string(body), err
}

// askReload reloads the configuration and returns the result.
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

// login opens a session.
func (r *running) login() *harness.Session {
	r.t.Helper()
	s, err := harness.Login(nil, r.service.Load().ports[0].Addr().String(), "ftp", 0)
	if err != nil {
		r.t.Fatal(err)
	}
	s.T = r.t
	r.t.Cleanup(func() { s.Conn.Close() })
	return s
}
