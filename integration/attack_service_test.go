package integration

import "testing"

// TestAttackPassivePortsArePredicted guesses the next passive port from the earlier ones. A program at the client's address that guesses
// right could connect first.
func TestAttackPassivePortsArePredicted(t *testing.T) {
	t.Parallel()
	s := startServer(t, "[ftp]\npassive_ports = '28200-28999'\n")
	c := s.session(account)
	last, hits, tries := 0, 0, count(60, 600)
	seen := make(map[int]bool)
	for range tries {
		port, err := c.EPSV()
		if err != nil {
			t.Fatal(err)
		}
		if distance := port - last; last > 0 && distance >= -5 && distance <= 5 {
			hits++
		}
		last, seen[port] = port, true
	}
	if hits > tries/10 || len(seen) < tries/4 {
		t.Errorf("of %d ports %d were within 5 of the one before; %d are different", tries, hits, len(seen))
	}
	t.Logf("%d of %d were within 5 of the one before", hits, tries)
}
