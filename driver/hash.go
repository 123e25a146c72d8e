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
	"io"
	"strings"

	"github.com/ftplockd/ftplockd/control"
	"github.com/ftplockd/ftplockd/files"
)

// digest is one way to compute a checksum.
type digest struct {
	name string // as HASH knows it (draft-bryan-ftpext-hash)
	new  func() hash.Hash
}

var (
	digestSHA1   = digest{"SHA-1", sha1.New}
	digestSHA256 = digest{"SHA-256", sha256.New}
	digestSHA512 = digest{"SHA-512", sha512.New}
	digestMD5    = digest{"MD5", md5.New}
	digestCRC32  = digest{"CRC32", func() hash.Hash { return crc32.NewIEEE() }}
)

// hashVerbs are the commands that ask for one digest; HASH asks for the one chosen with OPTS HASH.
var hashVerbs = map[string]digest{
	"XSHA256": digestSHA256, "XSHA512": digestSHA512, "XSHA": digestSHA1, "XSHA1": digestSHA1,
	"MD5": digestMD5, "XMD5": digestMD5, "XCRC": digestCRC32,
}

// hashNames are what OPTS HASH chooses from, in the order in which FEAT shows them.
var hashNames = []digest{digestSHA256, digestSHA512, digestSHA1, digestMD5, digestCRC32}

// hashFeature is the line of FEAT: the chosen one carries a star.
func (s *session) hashFeature() string {
	var b strings.Builder
	b.WriteString("HASH ")
	for _, d := range hashNames {
		b.WriteString(d.name)
		if d.name == s.digest.name {
			b.WriteByte('*')
		}
		b.WriteByte(';')
	}
	return b.String()
}

// optsHash is OPTS HASH: it tells or changes the algorithm of HASH.
func (s *session) optsHash(name string) control.Decision {
	if name == "" {
		return reply(200, s.digest.name)
	}
	for _, d := range hashNames {
		if strings.EqualFold(d.name, name) {
			s.digest = d
			return reply(200, d.name)
		}
	}
	return reply(504, "unknown algorithm: FEAT lists those that are known")
}

// hashCommand answers HASH: algorithm, range, digest, path.
func (s *session) hashCommand(cmd control.Command) control.Decision {
	return s.checksum(cmd, s.digest, func(sum string, n int64, view string) string {
		return fmt.Sprintf("%s 0-%d %s %s", s.digest.name, n, sum, view)
	}, 213)
}

// xhash answers XSHA256 and its like: the digest alone.
func (s *session) xhash(cmd control.Command) control.Decision {
	return s.checksum(cmd, hashVerbs[cmd.Verb], func(sum string, _ int64, _ string) string { return strings.ToUpper(sum) }, 250)
}

func (s *session) checksum(cmd control.Command, d digest, say func(sum string, n int64, view string) string, code int) control.Decision {
	view, err := s.abs(unquoted(cmd.Param))
	if err != nil {
		return s.refuse("", err)
	}
	from, err := s.client.content(view, files.DownloadOptions{})
	if err != nil {
		return s.refuse(view, err)
	}
	sum := d.new()
	n, err := io.Copy(sum, &whileConnected{from, s})
	if err := errors.Join(err, from.Close()); err != nil {
		return s.refuse(view, err)
	}
	return reply(code, say(hex.EncodeToString(sum.Sum(nil)), n, view))
}

// whileConnected ends the reading of a long file when nobody waits for its digest any more.
type whileConnected struct {
	io.Reader
	s *session
}

func (r *whileConnected) Read(p []byte) (int, error) {
	if r.s.conn.Gone() {
		return 0, errHungUp
	}
	return r.Reader.Read(p)
}

// unquoted takes off the quotes that some clients put around the path.
func unquoted(param string) string {
	if len(param) >= 2 && param[0] == '"' && param[len(param)-1] == '"' {
		return strings.ReplaceAll(param[1:len(param)-1], `""`, `"`)
	}
	return param
}
