package integration

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// TestATransferGoesOnBehindAPipelinedQuit sends a transfer together with QUIT and connects afterwards, as PHP 4 does, which closes the control connection
// first. The transfer is executed (RFC 959 section 4.1.1).
func TestATransferGoesOnBehindAPipelinedQuit(t *testing.T) {
	t.Parallel()
	s := startServer(t, defaults)
	s.write("down", "content")
	for _, way := range []string{"together", "apart"} { // the transfer and the QUIT
		for _, stays := range []bool{true, false} {
			if way == "apart" && stays {
				continue // such a client waits for the reply to its QUIT
			}
			t.Run(fmt.Sprint(way, ", stays ", stays), func(t *testing.T) {
				t.Parallel()
				name := fmt.Sprint("up-", way, stays)
				for line, want := range map[string]string{"STOR /s" + name: "new", "APPE /a" + name: "oldnew", "RETR /down": "content"} {
					file := strings.TrimPrefix(line[len("STOR "):], "/")
					if line[0] == 'A' {
						s.write(file, "old")
					}
					c := s.session(account)
					c.T = t
					c.Want(200, "TYPE I")
					connect, _ := c.prepare("passive")
					if way == "together" {
						c.says(line + "\r\nQUIT")
					} else {
						c.says(line)
						c.says("QUIT")
					}
					if !stays {
						if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
							t.Fatal(err)
						}
						c.Conn.Close()
					}
					data, err := connect()
					if err != nil {
						t.Fatal(err)
					}
					if strings.HasPrefix(line, "RETR") {
						if got, err := io.ReadAll(data); string(got) != want || err != nil {
							t.Errorf("%s: %q, %v", line, got, err)
						}
					} else if _, err := io.WriteString(data, "new"); err != nil {
						t.Error(err)
					}
					data.Close()
					if stays {
						c.WantReply(150)
						c.WantReply(226)
						c.WantReply(221)
					}
					harness.Await(t, line+" is done", func() bool { return s.exists(file) && s.read(file) == want })
				}
			})
		}
	}
}
