package etcd

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// The values of keys are JSON: those of locks and of the history are of the types below.
//
// A transaction cannot store its own revision. So what is new has no token in its value: its token is Base, which is the base
// at the time of the write, plus the ModRevision of the key. Later writes store the token, so that neither they nor a raised base change it.

// lockValue is the value of a lock's key.
type lockValue struct {
	Base  lock.Token `json:"base"`
	Holds []hold     `json:"holds"`
}

// lineValue is the value of a line of the history.
type lineValue struct {
	Base   lock.Token    `json:"base"`
	Cause  lock.Cause    `json:"event"`
	Name   text          `json:"name"`
	Token  lock.Token    `json:"token,omitempty"`
	At     instant       `json:"at"`
	By     owner         `json:"by"`
	Held   time.Duration `json:"held,omitempty"`
	Note   text          `json:"note,omitempty"`
	Holds  []hold        `json:"holds,omitempty"`
	File   text          `json:"file,omitempty"`
	Bytes  int64         `json:"bytes,omitempty"`
	SHA256 string        `json:"sha256,omitempty"`
}

type hold struct {
	Token    lock.Token `json:"token,omitempty"`
	Owner    owner      `json:"owner"`
	Acquired instant    `json:"acquired"`
	Renewed  instant    `json:"renewed,omitzero"`
	Ended    instant    `json:"ended,omitzero"`
	Rule     rule       `json:"rule"`
	Shared   bool       `json:"shared,omitempty"`
}

type owner struct {
	Account text   `json:"account,omitempty"`
	Address text   `json:"address,omitempty"`
	Session uint64 `json:"session,omitempty"`
	Nonce   text   `json:"nonce,omitempty"`
}

type instant struct {
	Wall   time.Time     `json:"wall,omitzero"`
	Boot   time.Duration `json:"boot,omitempty"`
	BootID text          `json:"boot_id,omitempty"`
}

type rule struct {
	Match        text               `json:"match"`
	MaxAge       time.Duration      `json:"max_age,omitempty"`
	MaxIdle      time.Duration      `json:"max_idle,omitempty"`
	OnDisconnect lock.Disconnect    `json:"on_disconnect,omitempty"`
	Grace        time.Duration      `json:"grace,omitempty"`
	LockDelay    time.Duration      `json:"lock_delay,omitempty"`
	Release      lock.ReleasePolicy `json:"release,omitempty"`
	AllowCwd     bool               `json:"allow_cwd,omitempty"`
}

// text is a string of any bytes, which JSON cannot hold: those that are not printable ASCII, and '"', '\' and '%', are percent-encoded.
type text string

func (t text) MarshalText() ([]byte, error) {
	b := make([]byte, 0, len(t))
	for i := range len(t) {
		if c := t[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' || c == '%' {
			b = fmt.Appendf(b, "%%%02X", c)
		} else {
			b = append(b, c)
		}
	}
	return b, nil
}

func (t *text) UnmarshalText(encoded []byte) error {
	b := make([]byte, 0, len(encoded))
	for i := 0; i < len(encoded); i++ {
		c := encoded[i]
		if c == '%' {
			if i+2 >= len(encoded) {
				return errors.New("a % without two digits")
			}
			n, err := strconv.ParseUint(string(encoded[i+1:i+3]), 16, 8)
			if err != nil {
				return err
			}
			c, i = byte(n), i+2
		}
		b = append(b, c)
	}
	*t = text(b)
	return nil
}

func instantValue(i lock.Instant) instant {
	return instant{Wall: i.Wall.UTC(), Boot: i.Boot, BootID: text(i.BootID)}
}

func (i instant) instant() lock.Instant {
	return lock.Instant{Wall: i.Wall, Boot: i.Boot, BootID: string(i.BootID)}
}

func ownerValue(o lock.Owner) owner {
	return owner{Account: text(o.Account), Address: text(o.Address), Session: uint64(o.Session), Nonce: text(o.Nonce)}
}

func (o owner) owner() lock.Owner {
	return lock.Owner{Account: string(o.Account), Address: string(o.Address), Session: lock.SessionID(o.Session), Nonce: string(o.Nonce)}
}

func holdValues(holds []lock.Hold) []hold {
	values := make([]hold, len(holds))
	for i, h := range holds {
		values[i] = hold{
			Token: h.Token, Owner: ownerValue(h.Owner), Shared: h.Shared,
			Acquired: instantValue(h.Acquired), Renewed: instantValue(h.Renewed), Ended: instantValue(h.Ended),
			Rule: rule{
				Match: text(h.Rule.Match), MaxAge: h.Rule.MaxAge, MaxIdle: h.Rule.MaxIdle, OnDisconnect: h.Rule.OnDisconnect,
				Grace: h.Rule.Grace, LockDelay: h.Rule.LockDelay, Release: h.Rule.Release, AllowCwd: h.Rule.AllowCwd,
			},
		}
	}
	return values
}

// holds returns what the values say. Those without a token have that of their write.
func holds(values []hold, written lock.Token) []lock.Hold {
	if len(values) == 0 {
		return nil
	}
	all := make([]lock.Hold, len(values))
	for i, v := range values {
		all[i] = lock.Hold{
			Token: v.Token, Owner: v.Owner.owner(), Shared: v.Shared,
			Acquired: v.Acquired.instant(), Renewed: v.Renewed.instant(), Ended: v.Ended.instant(),
			Rule: lock.Rule{
				Match: string(v.Rule.Match), MaxAge: v.Rule.MaxAge, MaxIdle: v.Rule.MaxIdle, OnDisconnect: v.Rule.OnDisconnect,
				Grace: v.Rule.Grace, LockDelay: v.Rule.LockDelay, Release: v.Rule.Release, AllowCwd: v.Rule.AllowCwd,
			},
		}
		if v.Token == 0 {
			all[i].Token = written
		}
	}
	return all
}

// encode makes the value of a key of one of these types, which can all be encoded.
func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// decodeLock reads the key of a lock. The record's revision counts from base, which is today's.
func decodeLock(name lock.Name, kv *mvccpb.KeyValue, base lock.Token) (lock.Record, error) {
	var v lockValue
	if err := json.Unmarshal(kv.Value, &v); err != nil {
		return lock.Record{}, fmt.Errorf("etcd: the lock %q: damaged: %w", name, err)
	}
	revision := lock.Token(kv.ModRevision)
	return lock.Record{Name: name, Revision: base + revision, Holds: holds(v.Holds, v.Base+revision)}, nil
}

func encodeEntry(e lock.Entry, base lock.Token) string {
	return encode(lineValue{
		Base: base, Cause: e.Cause, Name: text(e.Name), Token: e.Token, At: instantValue(e.At), By: ownerValue(e.By), Held: e.Held,
		Note: text(e.Note), Holds: holdValues(e.Holds), File: text(e.File), Bytes: e.Bytes, SHA256: e.SHA256,
	})
}

func decodeEntry(kv *mvccpb.KeyValue) (lock.Entry, error) {
	var v lineValue
	if err := json.Unmarshal(kv.Value, &v); err != nil {
		return lock.Entry{}, fmt.Errorf("etcd: %s: damaged: %w", kv.Key, err)
	}
	written := v.Base + lock.Token(kv.ModRevision)
	e := lock.Entry{
		At: v.At.instant(), Cause: v.Cause, Name: lock.Name(v.Name), Token: v.Token, By: v.By.owner(), Held: v.Held,
		Note: string(v.Note), Holds: holds(v.Holds, written), File: lock.Name(v.File), Bytes: v.Bytes, SHA256: v.SHA256,
	}
	if e.Token == 0 {
		e.Token = written
	}
	return e, nil
}
