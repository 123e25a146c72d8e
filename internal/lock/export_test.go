package lock

// Glob is for the tests of globs.
type Glob = nameGlob

// NewGlob compiles a glob.
func NewGlob(text string) (Glob, error) { return newGlob(text) }
