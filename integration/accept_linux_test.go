package integration

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// TestErrorsOfAcceptEndNothing lets every second accept of a thread fail by ENOBUFS, after which ftpserverlib and net/http stop to serve.
func TestErrorsOfAcceptEndNothing(t *testing.T) {
	t.Parallel()
	harness.Need(t, "strace")
	s := newServer(t, defaults+"[http]\nlisten = '127.0.0.1:0'\n")
	s.through = []string{"strace", "-D", "-f", "-qq", "-e", "trace=accept4", "-e", "inject=accept4:error=ENOBUFS:when=1+2", "-e", "signal=none", "-o", "/dev/null"}
	s.start()
	for range 3 {
		c := s.session(account)
		c.Want(200, "NOOP")
		c.Conn.Close()
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		answer, err := client.Get(strings.TrimSuffix(s.page, "/") + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		s.command("status")
	}
	s.log.AwaitLine(t, "accept failed", "control.sock")
	s.stop()
}
