package driver

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"strings"

	ftpserver "github.com/fclairamb/ftpserverlib"

	"github.com/ftplockd/ftplockd/internal/control"
)

// digests are how checksums are computed, and their names in HASH (draft-bryan-ftpext-hash).
var digests = map[ftpserver.HASHAlgo]struct {
	name string
	new  func() hash.Hash
}{
	ftpserver.HASHAlgoSHA1:   {"SHA-1", sha1.New},
	ftpserver.HASHAlgoSHA256: {"SHA-256", sha256.New},
	ftpserver.HASHAlgoSHA512: {"SHA-512", sha512.New},
	ftpserver.HASHAlgoMD5:    {"MD5", md5.New},
	ftpserver.HASHAlgoCRC32:  {"CRC32", func() hash.Hash { return crc32.NewIEEE() }},
}

// ComputeHash implements ftpserver.ClientDriverExtensionHasher: HASH, XSHA256 and its like, of the whole file.
func (c *client) ComputeHash(name string, algo ftpserver.HASHAlgo, _, _ int64) (string, error) {
	cmd := c.conn.Command()
	d := digests[algo]
	sum := d.new()
	n, err := c.digest(sum, name)
	text := hex.EncodeToString(sum.Sum(nil))
	r := control.Reply{Code: 250, Text: strings.ToUpper(text)}
	if cmd != nil && cmd.Verb == "HASH" {
		r = control.Reply{Code: 213, Text: fmt.Sprintf("%s 0-%d %s %s", d.name, n, text, name)}
	}
	return text, c.say(cmd, name, r, err)
}

func (c *client) digest(sum hash.Hash, view string) (int64, error) {
	from, err := c.content(view, 0, false)
	if err != nil {
		return 0, err
	}
	n, err := from.WriteTo(whileConnected{sum, c.conn})
	return n, errors.Join(err, from.Close())
}

// whileConnected ends the reading of a long file when nobody waits for its digest any more.
type whileConnected struct {
	hash.Hash
	conn *control.Conn
}

func (w whileConnected) Write(p []byte) (int, error) {
	if w.conn.Gone() {
		return 0, errHungUp
	}
	return w.Hash.Write(p)
}
