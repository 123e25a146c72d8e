package driver

import "bytes"

// In FTP's ASCII type CRLF ends a line (RFC 959 section 3.1.1.1), in files on Unix systems LF. The converters accept a stream in pieces of
// any size.
//
// In uploads CRLF becomes LF; a bare LF, and a CR without an LF after it, stay. In downloads LF becomes CRLF, but a CRLF in the file
// stays, as in vsftpd and proftpd: a file that a Windows client stored in binary type does not get CR CR LF.

// errASCIIOffset is the refusal of a transfer that begins at an offset: the client counts the bytes of its own line ends. vsftpd refuses it,
// too.
var errASCIIOffset = &refusal{code: 554, text: "REST needs TYPE I: in TYPE A line ends have other lengths"}

// toLF converts uploads.
type toLF struct {
	cr bool // a CR was held back, because the next piece may begin with an LF
}

// convert appends the next piece, converted, to dst: at most one byte more than src has. src may be in the same array, if it begins at
// least one byte after the end of dst.
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

// end appends a CR that was held back at the end of the stream.
func (c *toLF) end(dst []byte) []byte {
	if c.cr {
		c.cr = false
		dst = append(dst, '\r')
	}
	return dst
}

// toCRLF converts downloads.
type toCRLF struct {
	cr bool // the last byte was a CR
}

// convert appends the next piece, converted, to dst: at most twice as many bytes as src has.
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
