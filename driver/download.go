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
	_, err := d.source.WriteTo(conn)
	return err
}

func (d *download) end(err error) (string, error) {
	if cerr := d.source.Close(); err == nil {
		err = cerr
	}
	return d.done, err
}

// left is how much there is to send, if that is a file which can be gone on with where it stopped.
func (d *download) left() (int64, bool) {
	file, ok := d.source.(*files.Download)
	if !ok {
		return 0, false
	}
	return file.Left()
}
