package driver

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"hash"
	"hash/crc32"
	"io"
	"runtime"
	"time"

	ftpserver "github.com/fclairamb/ftpserverlib"

	"github.com/ftplockd/ftplockd/internal/control"
)

// digests limits how many digests of HASH, XMD5 and the like are computed at a time, in turns, because a digest keeps a processor busy. If
// all processors were busy, the runtime would poll the network every 10 ms only, and each MKD would wait for that several times.
type digests struct {
	turns chan struct{} // has a value for each turn that is taken
	turn  time.Duration // the length of a turn; then the next digest gets one
}

// newDigests leaves one processor to the rest of the server if there are several.
func newDigests() digests {
	return digests{turns: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)-1)), turn: 100 * time.Millisecond}
}

var (
	errNotHashed = &refusal{text: "the session ended before the digest was complete"}
	errRange     = &refusal{code: 501, text: "the range does not lie in the file"}
)

// ComputeHash implements ftpserver.ClientDriverExtensionHasher: HASH, XCRC, XMD5 and the like, of the bytes from one offset to before
// another.
func (c *client) ComputeHash(view string, algorithm ftpserver.HASHAlgo, from, to int64) (sum string, err error) {
	cmd := c.conn.Command()
	defer func() { err = c.reply(cmd, view, control.Reply{}, err) }()
	c.look(cmd, view)
	_, file, err := c.openFile(view)
	if err != nil {
		return "", err
	}
	defer file.Close()
	switch info, ierr := file.Stat(); {
	case ierr != nil:
		return "", ierr
	case from > to || to > info.Size():
		return "", errRange
	}
	_, err = file.Seek(from, io.SeekStart)
	h, content := newHash(algorithm), io.LimitReader(file, to-from)
	for err == nil { // io.EOF: to-from bytes were hashed; a file that has become shorter is files.ErrShrunk
		err = c.hashForATurn(h, content)
	}
	if !errors.Is(err, io.EOF) {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// hashForATurn waits for a turn and hashes the next part of the content. It returns io.EOF after the last part, and an error if the
// client has gone.
func (c *client) hashForATurn(h hash.Hash, content io.Reader) error {
	d, check := c.server.digests, time.NewTicker(time.Second)
	defer check.Stop()
	for taken := false; !taken; {
		select {
		case d.turns <- struct{}{}:
			taken = true
		case <-check.C:
			if c.conn.Gone() {
				return errNotHashed
			}
		}
	}
	defer func() { <-d.turns }()
	for began := time.Now(); ; {
		_, err := io.CopyN(h, content, 1<<20)
		switch {
		case err != nil:
			return err
		case c.conn.Gone():
			return errNotHashed
		case time.Since(began) >= d.turn:
			return nil
		}
	}
}

// newHash returns the hash of an algorithm of the library.
func newHash(algorithm ftpserver.HASHAlgo) hash.Hash {
	switch algorithm {
	case ftpserver.HASHAlgoCRC32:
		return crc32.NewIEEE()
	case ftpserver.HASHAlgoMD5:
		return md5.New()
	case ftpserver.HASHAlgoSHA1:
		return sha1.New()
	case ftpserver.HASHAlgoSHA512:
		return sha512.New()
	}
	return sha256.New()
}
