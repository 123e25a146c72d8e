package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// text is a string as appendText writes it.
type text string

// UnmarshalText decodes what appendText wrote and refuses everything else.
func (t *text) UnmarshalText(encoded []byte) error {
	decoded := make([]byte, 0, len(encoded))
	for i := 0; i < len(encoded); i++ {
		c := encoded[i]
		if c == '%' {
			if i+2 >= len(encoded) {
				return errors.New("cut off after %")
			}
			n, err := strconv.ParseUint(string(encoded[i+1:i+3]), 16, 8)
			if err != nil {
				return errors.New("no two hexadecimal digits after %")
			}
			decoded = append(decoded, byte(n))
			i += 2
			continue
		}
		if !plain(c) {
			return fmt.Errorf("byte %#x is not encoded", c)
		}
		decoded = append(decoded, c)
	}
	*t = text(decoded)
	return nil
}

// The shapes of JSON that parseLine reads.
type (
	jsonLine struct {
		Event      text           `json:"event"`
		Name       text           `json:"name"`
		Token      uint64         `json:"token"`
		Held       int64          `json:"held"`
		Note       text           `json:"note"`
		Version    int            `json:"version"`
		Generation uint32         `json:"generation"`
		Reserved   uint64         `json:"reserved"`
		File       text           `json:"file"`
		Bytes      int64          `json:"bytes"`
		SHA256     text           `json:"sha256"`
		Directory  *jsonDirectory `json:"directory"`
		Holds      []jsonHold     `json:"holds"`
		CRC        string         `json:"crc"`
		jsonInstant
		jsonOwner
	}
	jsonInstant struct {
		Time   time.Time `json:"time"`
		Boot   int64     `json:"boot"`
		BootID *text     `json:"boot_id"`
	}
	jsonOwner struct {
		Account text   `json:"account"`
		Address text   `json:"address"`
		Session uint64 `json:"session"`
		Nonce   text   `json:"nonce"`
	}
	jsonDirectory struct {
		Inode      uint64 `json:"inode"`
		Birth      int64  `json:"birth"`
		Generation uint32 `json:"generation"` // earlier versions wrote it
	}
	jsonHold struct {
		Token     uint64         `json:"token"`
		Acquired  *jsonInstant   `json:"acquired"`
		Renewed   *jsonInstant   `json:"renewed"`
		Ended     *jsonInstant   `json:"ended"`
		Rule      jsonRule       `json:"rule"`
		Shared    bool           `json:"shared"`
		Directory *jsonDirectory `json:"directory"`
		jsonOwner
	}
	jsonRule struct {
		Match        text          `json:"match"`
		MaxAge       time.Duration `json:"max_age"`
		MaxIdle      time.Duration `json:"max_idle"`
		OnDisconnect text          `json:"on_disconnect"`
		Grace        time.Duration `json:"grace"`
		LockDelay    time.Duration `json:"lock_delay"`
		Release      text          `json:"release"`
		AllowCwd     bool          `json:"allow_cwd"`
	}
)

// parseLine reads one line, without its newline. It accepts only what appendLine can have written: the
// checksum, no unknown key, nothing after the object.
func parseLine(b []byte) (line, error) {
	if err := verify(b); err != nil {
		return line{}, err
	}
	var j jsonLine
	decoder := json.NewDecoder(bytes.NewReader(b))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&j); err != nil {
		return line{}, err
	}
	if decoder.InputOffset() != int64(len(b)) {
		return line{}, errors.New("something follows the object")
	}
	l := j.line()
	return l, l.check()
}

// check says what a line lacks for its event.
func (l *line) check() error {
	switch {
	case l.Event == "":
		return errors.New("no event")
	case l.named() && (l.Name == "" || l.Name[0] != '/' || l.Token == 0):
		return fmt.Errorf("%s without a name and a token", l.Event)
	case l.Event == lock.CausePublish && (l.File == "" || l.File[0] != '/' || len(l.Holds) > 0):
		return errors.New("publish without a file")
	}
	return nil
}

// verify checks the checksum at the end of the line.
func verify(b []byte) error {
	if len(b) < sumLength {
		return errors.New("too short")
	}
	body, end := b[:len(b)-sumLength], b[len(b)-sumLength:]
	digits, found := bytes.CutPrefix(end, []byte(`,"crc":"`))
	if !found || !bytes.HasSuffix(digits, []byte(`"}`)) {
		return errors.New("no checksum at its end")
	}
	sum, err := strconv.ParseUint(string(digits[:8]), 16, 32)
	if err != nil {
		return errors.New("no checksum at its end")
	}
	if uint32(sum) != crc32.Checksum(body, checksums) {
		return errors.New("the checksum is wrong")
	}
	return nil
}

func (j *jsonLine) line() line {
	l := line{
		Event: lock.Cause(j.Event), Name: lock.Name(j.Name), Token: lock.Token(j.Token), At: j.instant(""),
		By: j.owner(), Held: time.Duration(j.Held), Note: string(j.Note),
		Directory: j.Directory.id(), Version: j.Version, Generation: j.Generation, Reserved: lock.Token(j.Reserved),
		File: lock.Name(j.File), Bytes: j.Bytes, SHA256: string(j.SHA256),
	}
	for i := range j.Holds {
		l.Holds = append(l.Holds, j.Holds[i].hold(l.At.BootID))
	}
	return l
}

func (j *jsonHold) hold(bootID string) lock.Hold {
	h := lock.Hold{
		Token: lock.Token(j.Token), Owner: j.owner(), Acquired: j.Acquired.instant(bootID),
		Renewed: j.Renewed.instant(bootID), Ended: j.Ended.instant(bootID), Directory: j.Directory.id(), Shared: j.Shared,
		Rule: lock.Rule{
			Match: string(j.Rule.Match), MaxAge: j.Rule.MaxAge, MaxIdle: j.Rule.MaxIdle,
			OnDisconnect: lock.Disconnect(j.Rule.OnDisconnect), Grace: j.Rule.Grace, LockDelay: j.Rule.LockDelay,
			Release: lock.ReleasePolicy(j.Rule.Release), AllowCwd: j.Rule.AllowCwd,
		},
	}
	if j.Renewed == nil {
		h.Renewed = h.Acquired
	}
	return h
}

func (j *jsonInstant) instant(bootID string) lock.Instant {
	if j == nil {
		return lock.Instant{}
	}
	if j.BootID != nil {
		bootID = string(*j.BootID)
	}
	return lock.Instant{Wall: j.Time, Boot: time.Duration(j.Boot), BootID: bootID}
}

func (j *jsonOwner) owner() lock.Owner {
	return lock.Owner{
		Account: string(j.Account), Address: string(j.Address),
		Session: lock.SessionID(j.Session), Nonce: string(j.Nonce),
	}
}

func (j *jsonDirectory) id() lock.DirectoryID {
	if j == nil {
		return lock.DirectoryID{}
	}
	return lock.DirectoryID{Inode: j.Inode, Birth: j.Birth}
}
