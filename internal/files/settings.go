package files

import (
	"io/fs"
	"time"
)

// settings are the options that a reload may change. An upload keeps those that it began with.
type settings struct {
	mode    fs.FileMode
	durable bool
	maxAge  time.Duration
}

// SetOptions changes what a reload may change; zero values mean what they mean in [Options]. Uploads under way keep
// what they began with.
func (t *Tree) SetOptions(mode fs.FileMode, durable bool, maxAge time.Duration) {
	o := Options{Mode: mode, Durable: durable, MaxAge: maxAge}
	o.setDefaults()
	t.setMu.Lock()
	defer t.setMu.Unlock()
	t.set = settings{o.Mode, o.Durable, o.MaxAge}
}

func (t *Tree) settings() settings {
	t.setMu.RLock()
	defer t.setMu.RUnlock()
	return t.set
}
