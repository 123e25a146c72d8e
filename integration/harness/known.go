package harness

import "testing"

// A Known is a fault that a test reproduces and that the code does not correct yet.
type Known struct {
	// Name describes the fault in one line. The log of a run names it.
	Name string

	// Intermittent states that a run may pass by chance while the fault exists.
	Intermittent bool
}

// KnownFailure reports err as the known fault name. The scenario must be deterministic: KnownFailure fails
// the test if err is nil, because then the fault is gone and the test must report its error itself.
func KnownFailure(t testing.TB, name string, err error) {
	t.Helper()
	Known{Name: name}.Check(t, err)
}

// Check reports err, the outcome of one run, as the known fault. It fails the test if err is nil, except for an
// intermittent fault.
func (k Known) Check(t testing.TB, err error) {
	t.Helper()
	switch {
	case err != nil:
		t.Logf("known failure: %s: %v", k.Name, err)
	case k.Intermittent:
		t.Logf("known failure: %s: did not occur in this run", k.Name)
	default:
		t.Errorf("known failure: %s: no longer fails: remove the mark", k.Name)
	}
}
