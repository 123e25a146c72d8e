package control_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/ftplockd/ftplockd/control"
	"github.com/spf13/afero"
)

// file knows what became of an upload.
type file struct {
	err  error
	gone bool // its client was
}

func (h *handler) passive(c *control.Conn) control.Decision {
	host, _, _ := net.SplitHostPort(c.LocalAddr().String())
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return control.Answer(control.Reply{Code: 425, Text: err.Error()})
	}
	h.mu.Lock()
	old := h.data
	h.data, h.aborted = l, false
	h.mu.Unlock()
	if old != nil {
		old.Close()
	}
	return control.Answer(control.Reply{Code: 229, Text: fmt.Sprintf("(|||%d|)", l.Addr().(*net.TCPAddr).Port)})
}

// begin runs STOR and RETR of a file in the server's directory.
func (h *handler) begin(cmd control.Command) control.Decision {
	h.mu.Lock()
	l := h.data
	h.mu.Unlock()
	return control.Run(func() control.Reply {
		if l == nil {
			return control.Reply{Code: 550, Text: "EPSV first"}
		}
		defer h.cut()
		if h.s.onFile != nil {
			h.s.onFile(cmd.Param)
		}
		flags := os.O_RDONLY
		if cmd.Verb == "STOR" {
			flags = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
		}
		opened, err := h.s.fs.OpenFile(cmd.Param, flags, 0o644)
		if err != nil {
			return control.Reply{Code: 550, Text: "no such file"}
		}
		return h.transfer(l, opened, cmd.Verb == "STOR")
	})
}

func (h *handler) transfer(l net.Listener, opened afero.File, store bool) control.Reply {
	conn, err := l.Accept()
	code := 425
	if err == nil && h.carries(conn) {
		code = 426
		h.c.Say(control.Reply{Code: 150, Text: "here it comes"})
		if store {
			_, err = io.Copy(opened, conn)
		} else {
			_, err = io.Copy(conn, opened)
		}
		err = errors.Join(err, conn.Close())
	}
	if h.s.onClose != nil {
		h.s.onClose()
	}
	if store {
		f := &file{err: err}
		if err == nil {
			f.gone = h.c.GoneWithin(200 * time.Millisecond)
		}
		h.s.files <- f
	}
	err = errors.Join(err, opened.Close())
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.aborted && err != nil:
		return control.Reply{Code: 426, Text: "aborted"}
	case err != nil:
		return control.Reply{Code: code, Text: err.Error()}
	}
	return control.Reply{Code: 226, Text: "done"}
}

// carries notes the data connection, for cut. It reports false if that came before.
func (h *handler) carries(conn net.Conn) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.aborted {
		conn.Close()
		return false
	}
	h.moving = conn
	return true
}

// cut ends the transfer and forgets what EPSV prepared.
func (h *handler) cut() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.aborted = true
	if h.data != nil {
		h.data.Close()
		h.data = nil
	}
	if h.moving != nil {
		h.moving.Close()
		h.moving = nil
	}
}
