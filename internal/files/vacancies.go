package files

// vacanciesMax is how many vacant names of one directory are kept in mind.
const vacanciesMax = 4096

// What the system tells makes a second look needless: that a directory is where it was, as long as nothing comes or goes above
// it, and that a name in it is vacant, until something happens there. What cannot be watched is looked at each time.

// mark is from before a look at a directory, or at a name in it: what has changed since then makes the look worthless.
type mark struct {
	dir     *parent // nil: what is seen is not to be kept in mind
	changes uint64
}

// takeSound is take, and reports whether the directory stands, as is known without a look. If not, a look may be settled.
func (ps *parents) takeSound(name string) (p *parent, m mark, sound bool) {
	if ps.root < 0 || name == "/" {
		return nil, m, false
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p = ps.takeLocked(name); p == nil {
		return nil, m, false
	}
	if p.sound && !ps.news.quiet() {
		ps.hearLocked()
	}
	if !p.sound && ps.watchLocked(ps.aboveLocked(p)) {
		m = mark{p, ps.changes}
	}
	return p, m, p.sound
}

// settle ends a look that has found the directory where it was.
func (ps *parents) settle(m mark) {
	if m.dir == nil {
		return
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	m.dir.sound = m.changes == ps.changes
}

// aboveLocked returns the directory that one which is kept lies in.
func (ps *parents) aboveLocked(p *parent) *parent {
	if p.above == nil {
		return &ps.top
	}
	return p.above
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
	if m.changes != ps.changes {
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
	if p != &ps.top && !ps.watchLocked(ps.aboveLocked(p)) || !ps.openNewsLocked() {
		return false
	}
	watch, err := ps.news.watch(p.fd)
	if err != nil {
		return false
	}
	if before := ps.watched[watch]; before != nil { // the same directory under a name that it had
		before.watch = -1
		ps.forgetLocked()
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
		ps.forgetLocked()
	}
}

// forgetLocked makes all be looked at again.
func (ps *parents) forgetLocked() {
	ps.changes++
	ps.top.vacancies = nil
	for _, p := range ps.kept {
		p.sound, p.vacancies = false, nil
	}
}

// unwatchLocked is for a directory that is to be closed.
func (ps *parents) unwatchLocked(p *parent) {
	if p.watch > 0 && ps.news != nil {
		delete(ps.watched, p.watch)
		ps.news.unwatch(p.watch)
	}
	p.watch, p.sound, p.vacancies = -1, false, nil
}
