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
