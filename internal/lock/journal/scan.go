package journal

import (
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// scanner reads lines in the one form in which appendLine writes them, several times faster than encoding/json: a start
// reads hundreds of thousands. Whatever has another form it leaves to parseLine, which says what a line
// means; the tests hold the two against each other. It is for one goroutine. The zero value is ready.
type scanner struct {
	b      []byte // what is left of the line
	failed bool   // the line has another form
	words  map[string]string
}

// maxWords is how many strings a scanner remembers at most.
const maxWords = 4096

// parse is parseLine, but faster.
func (s *scanner) parse(b []byte) (line, error) {
	if err := verify(b); err != nil {
		return line{}, err
	}
	if l, ok := s.scan(b[:len(b)-sumLength]); ok {
		return l, l.check()
	}
	return parseLine(b)
}

// scan reads a line without its checksum, or reports false.
func (s *scanner) scan(b []byte) (line, bool) {
	s.b, s.failed = b, false
	var l line
	s.expect(`{"event":`)
	l.Event = lock.Cause(s.word())
	if s.take(`,"name":`) {
		l.Name = lock.Name(s.text())
	}
	l.Token = lock.Token(s.number(`,"token":`))
	l.At.Wall = s.time()
	l.At.Boot = time.Duration(s.signed(`,"boot":`))
	if s.take(`,"boot_id":`) {
		l.At.BootID = s.word()
	}
	l.By = s.owner()
	l.Held = time.Duration(s.signed(`,"held":`))
	l.Note = s.field(`,"note":`)
	l.Version = int(s.small(`,"version":`))
	l.Generation = s.small(`,"generation":`)
	l.Reserved = lock.Token(s.number(`,"reserved":`))
	l.File = lock.Name(s.field(`,"file":`))
	l.Bytes = s.signed(`,"bytes":`)
	l.SHA256 = s.field(`,"sha256":`)
	l.Directory = s.directory()
	if s.take(`,"holds":[`) {
		l.Holds = append(l.Holds, s.hold(l.At.BootID))
		for !s.failed && s.take(`,`) {
			l.Holds = append(l.Holds, s.hold(l.At.BootID))
		}
		s.expect(`]`)
	}
	return l, !s.failed && len(s.b) == 0
}

func (s *scanner) hold(bootID string) (h lock.Hold) {
	s.expect(`{"token":`)
	h.Token = lock.Token(s.digits())
	h.Owner = s.owner()
	h.Acquired, _ = s.instant(`,"acquired":{"boot":`, bootID)
	var renewed bool
	if h.Renewed, renewed = s.instant(`,"renewed":{"boot":`, bootID); !renewed {
		h.Renewed = h.Acquired
	}
	h.Ended, _ = s.instant(`,"ended":{"boot":`, bootID)
	s.expect(`,"rule":{"match":`)
	h.Rule.Match = s.word()
	h.Rule.MaxAge = time.Duration(s.signed(`,"max_age":`))
	h.Rule.MaxIdle = time.Duration(s.signed(`,"max_idle":`))
	h.Rule.OnDisconnect = lock.Disconnect(s.common(`,"on_disconnect":`))
	h.Rule.Grace = time.Duration(s.signed(`,"grace":`))
	h.Rule.LockDelay = time.Duration(s.signed(`,"lock_delay":`))
	h.Rule.Release = lock.ReleasePolicy(s.common(`,"release":`))
	h.Rule.AllowCwd = s.take(`,"allow_cwd":true`)
	s.expect(`}`)
	h.Shared = s.take(`,"shared":true`)
	h.Directory = s.directory()
	s.expect(`}`)
	return h
}

func (s *scanner) instant(key, bootID string) (at lock.Instant, found bool) {
	if !s.take(key) {
		return at, false
	}
	at.Boot = time.Duration(s.minus())
	at.Wall = s.time()
	at.BootID = bootID
	if s.take(`,"boot_id":`) {
		at.BootID = s.word()
	}
	s.expect(`}`)
	return at, true
}

// time reads a time by the function that encoding/json uses.
func (s *scanner) time() (at time.Time) {
	if !s.take(`,"time":`) {
		return at
	}
	if err := at.UnmarshalText(s.raw()); err != nil {
		s.failed = true
	}
	return at
}

func (s *scanner) owner() lock.Owner {
	return lock.Owner{
		Account: s.common(`,"account":`), Address: s.common(`,"address":`),
		Session: lock.SessionID(s.number(`,"session":`)), Nonce: s.field(`,"nonce":`),
	}
}

func (s *scanner) directory() (id lock.DirectoryID) {
	if !s.take(`,"directory":{"inode":`) {
		return id
	}
	id.Inode = s.digits()
	id.Birth = s.signed(`,"birth":`)
	id.Generation = s.small(`,"generation":`)
	s.expect(`}`)
	return id
}

// take skips what is expected, if it is there.
func (s *scanner) take(expected string) bool {
	if len(s.b) < len(expected) || string(s.b[:len(expected)]) != expected {
		return false
	}
	s.b = s.b[len(expected):]
	return true
}

func (s *scanner) expect(expected string) {
	if !s.take(expected) {
		s.failed = true
	}
}

func (s *scanner) number(key string) uint64 {
	if !s.take(key) {
		return 0
	}
	return s.digits()
}

// small is a number that fits into 32 bits.
func (s *scanner) small(key string) uint32 {
	n := s.number(key)
	if n > 1<<32-1 {
		s.failed = true
	}
	return uint32(n)
}

func (s *scanner) signed(key string) int64 {
	if !s.take(key) {
		return 0
	}
	return s.minus()
}

// minus reads a number that may be negative.
func (s *scanner) minus() int64 {
	negative := s.take("-")
	n := s.digits()
	if n > 1<<63-1 {
		s.failed = true
	}
	if negative {
		return -int64(n)
	}
	return int64(n)
}

// digits reads a number. One of 20 digits may be too large, and is left to parseLine.
func (s *scanner) digits() (n uint64) {
	i := 0
	for i < len(s.b) && s.b[i] >= '0' && s.b[i] <= '9' {
		n = n*10 + uint64(s.b[i]-'0')
		i++
	}
	if i == 0 || i > 19 || i > 1 && s.b[0] == '0' {
		s.failed = true
	}
	s.b = s.b[i:]
	return n
}

// raw reads what is between quotation marks.
func (s *scanner) raw() []byte {
	s.expect(`"`)
	for i, c := range s.b {
		if c == '"' {
			raw := s.b[:i]
			s.b = s.b[i+1:]
			return raw
		}
		if c != '%' && !plain(c) {
			break
		}
	}
	s.failed = true
	return nil
}

// text reads what appendText wrote.
func (s *scanner) text() string {
	raw := s.raw()
	for _, c := range raw {
		if c == '%' {
			var t text
			if t.UnmarshalText(raw) != nil {
				s.failed = true
			}
			return string(t)
		}
	}
	return string(raw)
}

func (s *scanner) field(key string) string {
	if !s.take(key) {
		return ""
	}
	return s.text()
}

// common is a field that has the same value in many lines.
func (s *scanner) common(key string) string {
	if !s.take(key) {
		return ""
	}
	return s.word()
}

// word is text, but what occurs often is kept in memory once.
func (s *scanner) word() string {
	rest := s.b
	raw := s.raw()
	if word, ok := s.words[string(raw)]; ok {
		return word
	}
	key := string(raw)
	if !s.failed {
		s.b = rest
	}
	word := s.text()
	if s.words == nil {
		s.words = make(map[string]string)
	}
	if len(s.words) < maxWords && !s.failed {
		s.words[key] = word
	}
	return word
}
