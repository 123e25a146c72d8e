package driver

import (
	"runtime"
	"slices"
	"sync"
	"time"

	ftpserver "github.com/fclairamb/ftpserverlib"
	"github.com/spf13/afero"

	"github.com/ftplockd/ftplockd/internal/control"
)

// digests gives turns to the digests that the library computes for HASH, XMD5 and the like. A digest keeps a processor busy. If all
// processors are busy, the runtime looks for network traffic every 10 ms only, and each lock waits for that several times.
type digests struct {
	max  int           // how many have a turn at a time
	turn time.Duration // how long one goes on while others wait

	mu       sync.Mutex
	accounts map[string]bool // those with a turn, of which each has one
	waiting  []*digest       // first come, first served
}

// newDigests leaves one processor to the rest of the server if there are several.
func newDigests() *digests {
	return &digests{max: max(1, runtime.GOMAXPROCS(0)-1), turn: 100 * time.Millisecond, accounts: make(map[string]bool)}
}

// digest is a file that the library reads for a digest. It has a turn from its first Read on.
type digest struct {
	afero.File
	digests *digests
	conn    *control.Conn
	account string
	ready   chan struct{} // closed when it has its turn; nil: it does not wait
	since   time.Time     // when its turn began; zero: it has none
}

func (c *client) toDigest(view string) (ftpserver.FileTransfer, error) {
	c.look(c.conn.Command(), view)
	file, err := c.openFile(view)
	return &digest{File: file, digests: c.server.digests, conn: c.conn, account: c.account.Name}, err
}

// Read waits for a turn. It fails when the client no longer waits for the digest.
func (d *digest) Read(p []byte) (int, error) {
	if time.Since(d.since) > d.digests.turn {
		d.digests.end(d)
		if !d.digests.begin(d) {
			return 0, control.ErrHungUp
		}
	}
	if d.conn.Gone() {
		return 0, control.ErrHungUp
	}
	return d.File.Read(p)
}

// Close closes the file, and then ends the turn: the next digest begins when this one has ended.
func (d *digest) Close() error {
	defer d.digests.end(d)
	return d.File.Close()
}

// begin waits until the digest has its turn. It reports false if the client has gone.
func (ds *digests) begin(d *digest) bool {
	d.ready = make(chan struct{})
	ds.mu.Lock()
	ds.waiting = append(ds.waiting, d)
	ds.offerLocked()
	ds.mu.Unlock()
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for {
		select {
		case <-d.ready:
			d.since = time.Now()
			return true
		case <-look.C:
			if d.conn.Gone() {
				ds.withdraw(d)
				return false
			}
		}
	}
}

// withdraw takes a digest out of the queue, or ends the turn that it has got meanwhile.
func (ds *digests) withdraw(d *digest) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if i := slices.Index(ds.waiting, d); i >= 0 {
		ds.waiting = slices.Delete(ds.waiting, i, i+1)
		return
	}
	ds.endLocked(d)
}

// end ends the turn of a digest, if it has one.
func (ds *digests) end(d *digest) {
	if d.since.IsZero() {
		return
	}
	ds.mu.Lock()
	defer ds.mu.Unlock()
	ds.endLocked(d)
}

func (ds *digests) endLocked(d *digest) {
	d.since = time.Time{}
	delete(ds.accounts, d.account)
	ds.offerLocked()
}

// offerLocked gives turns to the first that wait.
func (ds *digests) offerLocked() {
	ds.waiting = slices.DeleteFunc(ds.waiting, func(d *digest) bool {
		if len(ds.accounts) >= ds.max || ds.accounts[d.account] {
			return false
		}
		ds.accounts[d.account] = true
		close(d.ready)
		return true
	})
}
