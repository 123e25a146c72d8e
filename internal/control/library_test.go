package control

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
)

// library replaces ftpserverlib, which executes the commands of one connection. The tests of the driver use ftpserverlib itself.
type library struct {
	s    *server
	conn *Conn

	replies map[string]string // in place of "250 done", by verb
	mkd     func(*Command)    // executes MKD
	onOpen  func()            // before a transfer has its handle
	refuses bool              // refuse transfers
	onClose func()            // before it closes the handle
	move    func()            // replaces the data connection of a download
	uploads chan error        // the result of each upload

	transfers sync.WaitGroup
	port      net.Listener // of the next transfer
}

func (l *library) run() {
	defer l.conn.Close()
	l.write("220 ready")
	buf := make([]byte, 4096)
	for {
		n, err := l.conn.Read(buf)
		if err != nil {
			break
		}
		for line := range strings.Lines(string(buf[:n])) {
			if verb, _, _ := strings.Cut(strings.TrimSpace(line), " "); !l.execute(strings.ToUpper(verb), line) {
				return
			}
		}
	}
	l.transfers.Wait()
}

func (l *library) write(reply string) { _, _ = io.WriteString(l.conn, reply+"\r\n") }

// execute reports whether the connection goes on.
func (l *library) execute(verb, line string) bool {
	l.transfers.Wait()
	switch verb {
	case "USER":
		l.write("331 password")
	case "PASS":
		l.conn.LogIn("user")
		l.write("230 welcome")
	case "QUIT":
		l.write("221 bye")
		return false
	case "EPSV":
		l.write(l.listen())
	case "STOR", "RETR":
		cmd, port := l.conn.Command(), l.port
		l.transfers.Go(func() { l.transfer(cmd, port, verb == "STOR") })
	case "MKD":
		if l.mkd != nil {
			l.mkd(l.conn.Command())
		}
		fallthrough
	default:
		reply, ok := l.replies[verb]
		if !ok {
			reply = "250 done"
		}
		l.write(reply)
	}
	return true
}

func (l *library) listen() string {
	_, number, ok := l.s.ports.FetchNext()
	if !ok {
		return "421 no port"
	}
	tcp, err := net.Listen("tcp4", fmt.Sprint("127.0.0.1:", number))
	if err != nil {
		return "421 " + err.Error()
	}
	if l.port, err = l.s.ports.Wrap(tcp); err != nil {
		return "421 " + err.Error()
	}
	return fmt.Sprintf("229 Entering Extended Passive Mode (|||%d|)", tcp.Addr().(*net.TCPAddr).Port)
}

// transfer opens and closes a file as the driver does.
func (l *library) transfer(cmd *Command, port net.Listener, upload bool) {
	if l.move != nil {
		l.write("150 begins")
		l.move()
		l.write("226 over")
		return
	}
	if l.onOpen != nil {
		l.onOpen()
	}
	if l.refuses {
		l.write("550 refused")
		return
	}
	if r := l.conn.CheckDataConnection(); r.Code != 0 {
		cmd.Reply(r)
		l.write("550 no handle")
		return
	}
	cmd.Opened()
	closeHandle := func(err error) {
		if l.onClose != nil {
			l.onClose()
		}
		if cause := cmd.Cause(); cause != nil {
			cmd.Reply(Reply{Code: 426, Text: cause.Error()})
		}
		if upload {
			l.uploads <- err
		}
		cmd.Closed()
	}
	defer port.Close()
	nc, err := port.Accept()
	if err != nil {
		l.write("425 no data connection") // before the handle is closed
		closeHandle(err)
		return
	}
	_ = cmd.Connected(nc)
	l.write("150 begins")
	if upload {
		_, err = io.Copy(io.Discard, nc)
	} else {
		_, err = io.WriteString(nc, "content")
	}
	nc.Close()
	if serr := cmd.seal(err == nil); serr != nil {
		err = serr
	}
	closeHandle(err)
	if err != nil {
		l.write("426 aborted")
	} else {
		l.write("226 over")
	}
}
