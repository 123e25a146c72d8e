package lock

import "testing"

func TestSessionIDsOfAStartNeverRepeat(t *testing.T) {
	seen := make(map[SessionID]bool)
	for start := range uint32(3) {
		for _, number := range []uint64{1, 2, 1 << 31, 1 << 32, 1<<32 + 1, 1<<33 + 2, 1<<40 - 1} {
			id := newSessionID(start+1, number)
			if seen[id] {
				t.Errorf("session %d of start %d has the id of another one: %s", number, start+1, id)
			}
			seen[id] = true
			if back, err := ParseSessionID(id.String()); err != nil || back != id {
				t.Errorf("%s is read as %s, %v", id, back, err)
			}
		}
	}
	for _, wrong := range []string{"", "3", "3-", "-17", "3-17-1", "a-b", "16777216-1", "1-1099511627776"} {
		if id, err := ParseSessionID(wrong); err == nil {
			t.Errorf("%q is read as %s", wrong, id)
		}
	}
}

func TestNames(t *testing.T) {
	for _, test := range []struct {
		name, dir Name
		within    bool
		parent    Name
	}{
		{"/a", "/", true, "/"}, {"/a", "/a", true, "/"}, {"/a/b", "/a", true, "/a"}, {"/ab", "/a", false, "/"}, {"/", "/", true, "/"}, {"/a", "/a/b", false, "/"},
	} {
		if got := test.name.Within(test.dir); got != test.within {
			t.Errorf("%s within %s: %v", test.name, test.dir, got)
		}
		if got := test.name.Parent(); got != test.parent {
			t.Errorf("the parent of %s: %s", test.name, got)
		}
	}
}
