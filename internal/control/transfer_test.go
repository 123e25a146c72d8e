package control

import (
	"strings"
	"testing"
	"time"
)

// A command after a transfer is executed after the file is closed, also if the library replies 425 before it closes the handle.
func TestACommandSeesTheEndOfTheTransfer(t *testing.T) {
	for _, want := range []string{"226", "425"} {
		c := serve(t).login()
		c.lib.onClose = func() {
			time.Sleep(20 * time.Millisecond) // it would be executed meanwhile
			if got := c.h.executed(); strings.Contains(got, "STRU") {
				t.Errorf("before the file was closed: %s", got)
			}
		}
		if c.play("epsv"); want == "226" {
			c.play("data; >> STOR x\r\nSTRU F\r\nMKD a\r\n; < 150")
		} else {
			c.play(">> STOR x\r\nSTRU F\r\nMKD a\r\n; settled")
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
		c.play("epsv; data; >> RETR f\r\nNOOP\r\nPWD\r\n; < 150; < 226; < 250; < 250")
	}
	if got := c.h.notes(); got != "" {
		t.Error(got)
	}
}

// A stop waits for the transfer, and then ends the connection although the client sends nothing more.
func TestAStopEndsTheConnectionAfterTheTransfer(t *testing.T) {
	c := serve(t).login()
	data := c.data(c.epsv())
	c.play("> STOR x; < 150; settled; stop")
	data.Close()
	c.play("< 226; < 421; end")
}

func TestAHangUpIsDetectedDuringATransfer(t *testing.T) {
	many := ">> " + strings.Repeat("NOOP\r\n", 20000) // too many to read ahead
	for transcript, want := range map[string]Reason{
		"half-close":                  ReasonEOF,
		"> NOOP; > MKD a; half-close": ReasonEOF,
		"reset":                       ReasonReset,
		"> NOOP; > MKD a; reset":      ReasonReset,
		"> QUIT; reset":               ReasonReset,
		many + "; half-close":         "",
		many + "; reset":              "",
	} {
		t.Run(transcript[max(0, len(transcript)-30):], func(t *testing.T) {
			c := serve(t).login()
			c.data(c.epsv())
			c.play("> STOR x; < 150; " + transcript)
			if why := <-c.h.over; want != "" && why != want {
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

// A QUIT in the packet of a transfer does not wait long for a data connection that does not come.
func TestQuitWithATransferThatIsNotConnected(t *testing.T) {
	serve(t, func(o *setup) { o.late = 20 * time.Millisecond }).login().play("epsv; >> STOR x\r\nQUIT\r\n; < 425; < 221")
}

// An ABOR aborts a transfer whose file is not open yet, and a QUIT after it changes nothing.
func TestAborBeforeTheFileIsOpened(t *testing.T) {
	c := serve(t).login()
	opening, open := make(chan struct{}), make(chan struct{})
	c.lib.onOpen = func() { close(opening); <-open }
	c.play("epsv; > STOR x")
	<-opening
	c.play(">> ABOR\r\nQUIT\r\n; settled")
	close(open)
	c.play("< 426 aborted by ABOR; < 226; < 221")
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
