package control

import (
	"io"
	"strings"
	"testing"
	"time"
)

// A command behind a transfer is executed after the file is closed, also if the library replies 425 before it closes the handle.
func TestACommandSeesTheEndOfTheTransfer(t *testing.T) {
	for _, want := range []string{"226 ", "425 "} {
		c := serve(t).login()
		c.lib.onClose = func() {
			time.Sleep(20 * time.Millisecond) // it would be executed meanwhile
			if got := c.h.executed(); strings.Contains(got, "STRU") {
				t.Errorf("before the file was closed: %s", got)
			}
		}
		addr := c.epsv()
		if want == "226 " {
			data := c.data(addr)
			c.play(">> STOR x\r\nSTRU F\r\nMKD a\r\n", "< 150 ")
			_ = data.Close()
		} else {
			c.send("STOR x\r\nSTRU F\r\nMKD a\r\n")
			c.settled()
			c.lib.conn.Command().port.close()
		}
		c.expect(want, "200 ", "250 ")
		if got := c.h.notes(); got != "" {
			t.Error(got)
		}
	}
}

// When the transfer ends, Read must wake up and execute the commands that it has read ahead.
func TestTheEndOfATransferIsNeverMissed(t *testing.T) {
	c := serve(t).login()
	for range 100 {
		c.data(c.epsv())
		c.play(">> RETR f\r\nNOOP\r\nPWD\r\n", "< 150 ", "< 226 ", "< 250 ", "< 250 ")
	}
	if got := c.h.notes(); got != "" {
		t.Error(got)
	}
}

func TestAHangUpIsDetectedDuringATransfer(t *testing.T) {
	many := strings.Repeat("NOOP\r\n", 20000)
	eof := func(c *client) { _ = c.tcp.CloseWrite() }
	rst := func(c *client) { reset(c.tcp) }
	for name, tc := range map[string]struct {
		pipelined string
		hangUp    func(c *client)
		want      Reason // "": the input is too long to read ahead
	}{
		"EOF":                    {"", eof, ReasonEOF},
		"EOF behind commands":    {"NOOP\r\nMKD a\r\n", eof, ReasonEOF},
		"reset":                  {"", rst, ReasonReset},
		"reset behind commands":  {"NOOP\r\nMKD a\r\n", rst, ReasonReset},
		"reset behind QUIT":      {"QUIT\r\n", rst, ReasonReset},
		"EOF behind very many":   {many, eof, ""},
		"reset behind very many": {many, rst, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := serve(t).login()
			c.data(c.epsv())
			c.play("> STOR x", "< 150 ")
			c.send(tc.pipelined)
			tc.hangUp(c)
			if why := <-c.h.over; tc.want != "" && why != tc.want {
				t.Errorf("ended: %v", why)
			}
			if len(c.lib.uploads) != 1 {
				t.Fatal("Ended was called before the end of the transfer")
			}
			if err := <-c.lib.uploads; err != ErrHungUp || !c.lib.conn.Gone() {
				t.Errorf("the upload: %v, gone: %v", err, c.lib.conn.Gone())
			}
			if strings.Contains(c.h.executed(), "MKD") {
				t.Errorf("executed: %s", c.h.executed())
			}
		})
	}
}

// A QUIT in the packet of the transfer does not abort it if the data connection was opened before, though not accepted yet.
func TestQuitPipelinedWithATransfer(t *testing.T) {
	s := serve(t)
	for range 20 {
		c := s.login()
		data := c.data(c.epsv())
		_, _ = io.WriteString(data, "content")
		_ = data.Close()
		c.play(">> STOR x\r\nQUIT\r\n", "< 150 ", "< 226 ", "< 221 ")
	}
	c := s.login() // no data connection
	c.epsv()
	began := time.Now()
	c.play(">> STOR x\r\nQUIT\r\n", "< 425 ", "< 221 ")
	if took := time.Since(began); took > patience/2 {
		t.Errorf("QUIT waited for the data connection: %v", took)
	}
}

// An ABOR aborts a transfer whose file is not open yet, and a QUIT behind it changes nothing.
func TestAborBeforeTheFileIsOpened(t *testing.T) {
	c := serve(t).login()
	opening, open := make(chan struct{}), make(chan struct{})
	c.lib.onOpen = func() { close(opening); <-open }
	c.epsv()
	c.send("STOR x\r\n")
	<-opening
	c.send("ABOR\r\nQUIT\r\n")
	c.settled()
	close(open)
	c.play("< 426 aborted by ABOR", "< 226 ", "< 221 ")
	c.h.endedWith(t, ReasonQuit)
}

func TestTheInputBufferIsBounded(t *testing.T) {
	in := input{limit: 8 << 10}
	for range 40 {
		in.added(copy(in.space(), strings.Repeat("NOOP\r\n", 1000)))
	}
	if len(in.buf) < 32<<10 || len(in.buf) > inputMax {
		t.Errorf("%d bytes", len(in.buf))
	}
	in.consume(in.w)
	if n := len(in.space()); n > inputSize {
		t.Errorf("%d bytes when all was taken", n)
	}
}
