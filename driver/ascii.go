package driver

import "bytes"

// FTP's ASCII type has CRLF as the end of a line (RFC 959 section 3.1.1.1); files on a
// Unix system have LF. The converters take a stream in pieces of any size.
//
// Coming in, CRLF becomes LF; a bare LF and a CR that no LF follows stay as they are. Going out,
// LF becomes CRLF, but a CRLF that is in the file stays as it is, as with vsftpd and proftpd: a
// file that was stored in binary by a Windows client does not get CR CR LF.

// toLF converts what comes in.
type toLF struct {
	cr bool // a CR was held back: the next piece says whether an LF follows
}

// convert appends the next piece, converted, to dst: at most one byte more than it has. src may lie in the rest of
// the same array, one byte or more behind the end of dst.
func (c *toLF) convert(dst, src []byte) []byte {
	if len(src) == 0 {
		return dst
	}
	if c.cr && src[0] != '\n' {
		dst = append(dst, '\r')
	}
	c.cr = false
	for {
		i := bytes.IndexByte(src, '\r')
		switch {
		case i < 0:
			return append(dst, src...)
		case i == len(src)-1:
			c.cr = true
			return append(dst, src[:i]...)
		case src[i+1] == '\n':
			dst = append(dst, src[:i]...)
		default:
			dst = append(dst, src[:i+1]...)
		}
		src = src[i+1:]
	}
}

// end appends what was held back at the end of the stream.
func (c *toLF) end(dst []byte) []byte {
	if c.cr {
		c.cr = false
		dst = append(dst, '\r')
	}
	return dst
}

// toCRLF converts what goes out.
type toCRLF struct {
	cr bool // the last byte was a CR
}

// convert appends the next piece, converted, to dst: at most twice as many bytes as it has.
func (c *toCRLF) convert(dst, src []byte) []byte {
	for len(src) > 0 {
		i := bytes.IndexByte(src, '\n')
		if i < 0 {
			c.cr = src[len(src)-1] == '\r'
			return append(dst, src...)
		}
		if i > 0 {
			c.cr = src[i-1] == '\r'
		}
		dst = append(dst, src[:i]...)
		if !c.cr {
			dst = append(dst, '\r')
		}
		dst = append(dst, '\n')
		c.cr = false
		src = src[i+1:]
	}
	return dst
}
