package driver

import (
	"sync"
	"testing"
)

// follow runs the next of several servers on one log, one tree and one shared state, while this one goes on.
func (s *server) follow() *server {
	s.t.Helper()
	next := *s.setup
	next.epoch++
	f := &server{t: s.t, root: s.root, state: s.state, clock: s.clock, memory: s.memory}
	f.run(&next)
	return f
}

// The first server stops between its last check and the rename, until another one has taken over.
func TestAnUploadThatAnotherServerHasSweptIsNotPublished(t *testing.T) {
	for _, path := range []string{"/phone.tsv", "/x_lock/f", "/plain"} {
		s := start(t, protected, plainLocks, func(o *setup) { o.epoch = 1 })
		s.write("/phone.tsv", "old")
		s.write("/plain", "old")
		a := s.job("boss")
		a.want("MKD /phone_lock", "257 *")
		a.want("MKD /x_lock", "257 *")
		a.store("/x_lock/f", "old")
		d := a.opened("STOR "+path, false)
		d.Write([]byte("late"))
		var next *server
		takeOver := sync.OnceFunc(func() { next = s.follow() })
		if path == "/plain" { // no lock protects it, so no check precedes the rename
			takeOver()
		} else {
			s.asked.Store(&takeOver)
		}
		d.Close()
		a.check("STOR "+path, a.reply(), "451 "+path+": the server lost the upload: another server took over, or a program removed it; try again")
		b := next.job("boss")
		if got := b.fetch("RETR " + path); got != "old" {
			t.Errorf("%s holds %q", path, got)
		}
		b.want("MKD /phone_lock", "257 *")
		b.want("MKD /x_lock", "257 *")
		b.store(path, "new")
		s.halt()
		b.store(path, "newer")
		b.want("DELE "+path, "250 *")
	}
}
