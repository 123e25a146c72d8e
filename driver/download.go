package driver

import (
	"crypto/tls"
	"net"
	"time"

	"github.com/ftplockd/ftplockd/files"
)

// download is the cargo of RETR and of the listings.
type download struct {
	source
	t    *transfer
	pace files.Pace
	done string // the text of the 226
}

func (d *download) carry(conn net.Conn) error {
	if err := handshake(d.t.session.context(), conn, d.pace.Timeout); err != nil {
		return err
	}
	if plain, ok := conn.(*dataConn); ok {
		plain.cork()
	}
	if _, err := d.source.WriteTo(conn); err != nil {
		return err
	}
	return handOver(conn, d.t.session.server.delays.lastWord)
}

// handOver ends what is sent, and waits until the client ends the connection, too, which is when it has read all of it. A client that reads one
// reply at a time would never see a 226 that comes together with the 150: aria2 1.36 stands still for a minute then.
// It waits for that time at most: some clients want the 226 first. It fails with files.ErrWouldWait only, and can be called again then.
func handOver(conn net.Conn, within time.Duration) error {
	below := conn
	if secure, ok := conn.(*tls.Conn); ok {
		_ = secure.CloseWrite() // how a connection ends is of no interest: all was sent
		below = secure.NetConn()
	}
	plain, ok := below.(*dataConn)
	if !ok {
		return nil
	}
	return plain.handOver(within)
}

func (d *download) end(err error) (string, error) {
	if cerr := d.source.Close(); err == nil {
		err = cerr
	}
	return d.done, err
}

// smallFile is how many bytes are sent by those who execute commands: a disk might need some time for more.
const smallFile = 1 << 20

func (d *download) small() bool {
	file, ok := d.source.(*files.Download)
	if !ok {
		return false
	}
	left, resumable := file.Left()
	return resumable && left <= smallFile
}

func (d *download) prompt() bool { return true }
