package files

// vacanciesMax is how many vacant names of one directory are kept in mind.
const vacanciesMax = 4096

// What the system tells makes a second look at a vacant name needless: directories that are kept open, and those above them, are
// watched, and a name that was seen vacant is so until something happens there. What cannot be watched is looked at each time.

// mark is from before a look at a name: what has changed since then makes the look worthless.
type mark struct {
	dir     *parent // nil: what is seen in it is not to be kept in mind
	changes uint64
}

// vacant reports whether nothing has the name, which is in a directory without links in its path, and that this is known
// without a look. The directory is where it was, too.
func (ps *parents) vacant(dir, base string) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.knownLocked(dir)
	if p == nil || !p.isVacant(base) {
		return false
	}
	p.used = true
	if ps.news.quiet() {
		return true
	}
	ps.hearLocked()
	return p.isVacant(base)
}

func (p *parent) isVacant(base string) bool {
	_, vacant := p.vacancies[base]
	return vacant
}

// mark begins a look at a name in the directory: one that has found out that the directory stands, and then that the name
// is vacant, may be noted.
func (ps *parents) mark(dir string) mark {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.knownLocked(dir)
	if p == nil || !ps.watchLocked(p) {
		return mark{}
	}
	return mark{p, ps.changes}
}

// note ends a look that has found the name vacant.
func (ps *parents) note(m mark, base string) {
	if m.dir == nil {
		return
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if m.changes != ps.changes || m.dir.watch <= 0 {
		return
	}
	if m.dir.vacancies == nil || len(m.dir.vacancies) >= vacanciesMax {
		m.dir.vacancies = make(map[string]struct{})
	}
	m.dir.vacancies[base] = struct{}{}
}

// knownLocked returns the directory if it is kept open, or the root.
func (ps *parents) knownLocked(dir string) *parent {
	if ps.root < 0 {
		return nil
	}
	if dir == "/" {
		return &ps.top
	}
	return ps.kept[dir]
}

// watchLocked watches a directory and those above it, and reports whether they are watched.
func (ps *parents) watchLocked(p *parent) bool {
	if p.watch != 0 {
		return p.watch > 0
	}
	p.watch = -1
	above := p.above
	if above == nil {
		above = &ps.top
	}
	if p != above && !ps.watchLocked(above) || !ps.openNewsLocked() {
		return false
	}
	watch, err := ps.news.watch(p.fd)
	if err != nil {
		return false
	}
	if before := ps.watched[watch]; before != nil { // the same directory under a name that it had
		before.watch, before.vacancies = -1, nil
	}
	p.watch = watch
	ps.watched[watch] = p
	return true
}

func (ps *parents) openNewsLocked() bool {
	if !ps.deaf && ps.news == nil {
		n, err := openNews()
		ps.news, ps.deaf = n, err != nil
	}
	return !ps.deaf
}

// hearLocked takes in what the system tells.
func (ps *parents) hearLocked() {
	ps.changes++
	all := false
	lost := ps.news.read(func(g gossip) {
		if p := ps.watched[g.watch]; p != nil {
			p.vacancies = nil
			all = all || g.deep
		}
	})
	if all || lost {
		for _, p := range ps.watched {
			p.vacancies = nil
		}
	}
}

// unwatchLocked is for a directory that is to be closed.
func (ps *parents) unwatchLocked(p *parent) {
	if p.watch > 0 && ps.news != nil {
		delete(ps.watched, p.watch)
		ps.news.unwatch(p.watch)
	}
	p.watch, p.vacancies = -1, nil
}
