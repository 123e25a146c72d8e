package control_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	ftpserver "github.com/fclairamb/ftpserverlib"
	"github.com/spf13/afero"

	"github.com/ftplockd/ftplockd/internal/control"
)

type (
	osFileMode = os.FileMode
	osFileInfo = os.FileInfo
)

// file knows what became of an upload.
type file struct {
	err  error
	gone bool // its client was
}

// transfer is the library's handle of one transfer. An upload gets its name when it is complete and nobody has aborted it.
type transfer struct {
	h      *handler
	cmd    *control.Command
	name   string // of an upload; "": it is a download
	source io.Reader
	sink   bytes.Buffer
	broken error
	opened bool

	mu      sync.Mutex
	conn    net.Conn
	aborted bool
	done    bool // it is too late to abort
}

var errAborted = errors.New("aborted")

// GetHandle opens what a command transfers.
func (a *account) GetHandle(name string, flags int, _ int64) (ftpserver.FileTransfer, error) {
	cmd := a.h.c.Command()
	if !cmd.Transfers() { // HASH
		return a.Fs.Open(name)
	}
	if a.h.s.onFile != nil {
		a.h.s.onFile(name)
	}
	if r := a.h.c.DataConnection(); r.Code != 0 {
		cmd.Say(r)
		return nil, errors.New("no data connection")
	}
	t := &transfer{h: a.h, cmd: cmd}
	switch {
	case flags&os.O_WRONLY != 0:
		t.name = name
	case cmd.Verb == "LIST" || cmd.Verb == "NLST" || cmd.Verb == "MLSD":
		t.source = bytes.NewReader([]byte(cmd.Verb + " of " + cmd.Param + "\r\n"))
	default:
		content, err := afero.ReadFile(a.Fs, name)
		if err != nil {
			return nil, err
		}
		t.source = bytes.NewReader(content)
	}
	cmd.Hold() // until Close
	cmd.OnInterrupt(t.interrupt)
	return t, nil
}

func (t *transfer) interrupt(i control.Interruption) {
	if t.h.onInterrupt != nil {
		t.h.onInterrupt(i)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if i == control.Quitting || t.done {
		return
	}
	t.aborted = true
	if t.conn != nil {
		t.conn.Close()
	} else {
		t.cmd.Say(control.Reply{Code: 426, Text: "aborted"})
	}
}

// open takes the data connection, unless an abort came before.
func (t *transfer) open(stream any) (net.Conn, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.aborted {
		return nil, errAborted
	}
	t.opened, t.conn = true, stream.(net.Conn)
	return t.conn, nil
}

func (t *transfer) ReadFrom(r io.Reader) (n int64, err error) {
	conn, err := t.open(r)
	if t.h.s.onMove != nil {
		t.h.s.onMove()
	}
	if err == nil {
		n, err = io.Copy(&t.sink, onlyReader{conn})
	}
	t.broken = err
	return n, err
}

func (t *transfer) WriteTo(w io.Writer) (n int64, err error) {
	conn, err := t.open(w)
	if err == nil {
		n, err = io.Copy(onlyWriter{conn}, t.source)
	}
	t.broken = err
	return n, err
}

type onlyReader struct{ io.Reader }
type onlyWriter struct{ io.Writer }

func (t *transfer) Close() error {
	defer t.cmd.Release()
	if t.h.s.onClose != nil {
		t.h.s.onClose()
	}
	err := t.broken
	if err == nil && !t.opened {
		err = errors.New("no data connection")
	}
	gone := false
	if t.name != "" && err == nil {
		gone = goneWithin(t.h.c, t.h.s.hangUp)
		t.h.c.CatchUp(100 * time.Millisecond)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.aborted && (err != nil || t.name != "") {
		t.cmd.Say(control.Reply{Code: 426, Text: "aborted"})
		err = errAborted
	}
	t.done = true
	if t.name == "" {
		return err
	}
	if err == nil && !gone {
		err = afero.WriteFile(t.h.s.fs, t.name, t.sink.Bytes(), 0o644)
	}
	t.h.s.files <- &file{err: err, gone: gone}
	return err
}

func (t *transfer) Read([]byte) (int, error)            { return 0, os.ErrInvalid }
func (t *transfer) Write([]byte) (int, error)           { return 0, nil }
func (t *transfer) Seek(at int64, _ int) (int64, error) { return at, nil }

// goneWithin is how an upload waits for the end of its client.
func goneWithin(c *control.Conn, d time.Duration) bool {
	for until := time.Now().Add(d); !c.Gone() && time.Now().Before(until); {
		time.Sleep(time.Millisecond)
	}
	return c.Gone()
}
