package lock

// Glob is for the tests of globs.
type Glob = nameGlob

// NewGlob compiles a glob.
func NewGlob(text string) (Glob, error) { return newGlob(text) }

// BootOffset is for the test of BootID.
var BootOffset = bootOffset

// Holds returns every hold.
func (t *Table) Holds() (all []Hold) {
	for _, s := range t.All() {
		all = append(all, s.Holds...)
	}
	return all
}

// RememberedViews returns how much the table remembers of jobs and automatic locks.
func (t *Table) RememberedViews() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(t.st.jobs) + len(t.st.sites)
	t.st.eachView(func(*jobView) { n++ })
	return n
}

// RememberedSigns returns how many commands of jobs the table remembers.
func (t *Table) RememberedSigns() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.st.eachView(func(v *jobView) { n += len(v.signs.commands) })
	return n
}
