package driver

import (
	"net"

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
	_, err := d.source.WriteTo(conn)
	return err
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
