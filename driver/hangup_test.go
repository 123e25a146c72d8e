package driver

import (
	"net"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// machine says one after the other how many tasks want a processor, and the last number for ever.
type machine struct {
	mu    sync.Mutex
	tasks []int
	at    func() // called before each answer
}

func (m *machine) running() (int, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.at != nil {
		m.at()
	}
	n := m.tasks[0]
	if len(m.tasks) > 1 {
		m.tasks = m.tasks[1:]
	}
	return n, n > 0
}

func TestOnACalmMachineAnUploadDoesNotWait(t *testing.T) {
	for _, tasks := range [][]int{{1}, {3, 2, 1}, {1, 2, 2, 1, 1}} {
		m := &machine{tasks: tasks}
		s := start(t, func(o *setup) { o.delays.hangUp, o.running = patience, m.running })
		c := s.as("phoneacc")
		began := time.Now()
		c.store("/f", "whole")
		s.wantContent("/f", "whole")
		if took := time.Since(began); took >= patience {
			t.Errorf("tasks %v: it took %v", tasks, took)
		}
	}
}

// half sends half of a file, and ends the data connection.
func (c *conn) half(name string) {
	c.t.Helper()
	d := c.data()
	c.want("STOR "+name, "150 *")
	if _, err := d.Write([]byte("half of it")); err != nil {
		c.t.Fatal(err)
	}
	d.Close()
}

// The data connection's end is seen long before that of the control connection, while something wants a processor: it is the
// client, which dies.
func TestABusyMachineMayBeBusyWithAKill(t *testing.T) {
	for name, tasks := range map[string][]int{
		"busy":             {2},
		"calm for a look":  {2, 1, 2, 1, 2, 1, 2},
		"it does not tell": {0},
	} {
		t.Run(name, func(t *testing.T) {
			m := &machine{tasks: tasks}
			s := start(t, func(o *setup) { o.delays.hangUp, o.running = patience, m.running })
			s.write("/f", "old")
			c := s.as("phoneacc")
			c.half("/f")
			time.AfterFunc(50*time.Millisecond, func() { c.tcp.Close() })
			s.alone()
			s.wantContent("/f", "old")
		})
	}
}

// The machine is calm because the client has just died: its connection is looked at after the machine.
func TestAMachineThatIsCalmAfterAKill(t *testing.T) {
	s := start(t)
	c := s.as("phoneacc")
	own := s.onlySession()
	m := &machine{tasks: []int{1}}
	looked := 0
	m.at = func() {
		if looked++; looked == calmLooks {
			c.tcp.Close()
		}
	}
	h := hangUps{within: patience, running: m.running, lookout: new(lookout), owners: new(owners)}
	if !h.gone(own.conn, time.Now(), false) {
		t.Error("it is taken to live")
	}
	if looked < calmLooks {
		t.Errorf("the machine was looked at %d times", looked)
	}
}

func TestABusyMachineIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lookout
		if !l.take() || l.take() {
			t.Error("two look at once, or nobody may")
		}
		l.give(true, 1)
		if !l.take() {
			t.Error("nobody may look at a calm machine")
		}
		l.give(false, 2)
		if l.take() {
			t.Error("it is looked at again at once")
		}
		time.Sleep(busyFor)
		if !l.take() {
			t.Error("it is never looked at again")
		}
	})
}

// A dying process shares the processors with all others: with 13 tasks on two, one kill in 60 took 14 ms.
func TestOnACrowdedMachineAClientMayTakeLongerToHangUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := runtime.NumCPU()
		for tasks, want := range map[int]time.Duration{
			crowded * n: 2 * time.Millisecond, (crowded + 1) * n: (crowded + 1) * slice, 1000 * n: longest,
		} {
			var l lookout
			l.take()
			l.give(false, tasks)
			if got := l.within(2 * time.Millisecond); got != want {
				t.Errorf("%d tasks: %v, want %v", tasks, got, want)
			}
			time.Sleep(busyFor) // by then it may be different
			if got := l.within(2 * time.Millisecond); got != 2*time.Millisecond {
				t.Errorf("%d tasks a while ago: %v", tasks, got)
			}
		}
	})
	// The client hangs up later than usual, and is noticed.
	m := &machine{tasks: []int{1000 * runtime.NumCPU()}}
	s := start(t, func(o *setup) { o.delays.hangUp, o.running = time.Nanosecond, m.running })
	c := s.as("phoneacc")
	h := hangUps{within: time.Nanosecond, running: m.running, lookout: new(lookout), owners: new(owners)}
	own := s.onlySession()
	time.AfterFunc(longest/5, func() { c.tcp.Close() })
	if !h.gone(own.conn, time.Now(), false) {
		t.Error("it is taken to live")
	}
}

// onlySession returns the session of the only client.
func (s *server) onlySession() (own *session) {
	s.driver.mu.Lock()
	defer s.driver.mu.Unlock()
	for one := range s.driver.sessions {
		own = one
	}
	return own
}

func TestOnlyClientsOfThisMachineAreKnownByIt(t *testing.T) {
	for text, want := range map[string]bool{
		"127.0.0.1:4000": true, "127.1.2.3:4000": true, "[::1]:4000": true, "[::ffff:127.0.0.1]:4000": true,
		"10.0.0.5:4000": false, "[fe80::1%eth0]:4000": false, "[2001:db8::1]:4000": false, "0.0.0.0:1": false,
	} {
		a, err := net.ResolveTCPAddr("tcp", text)
		if err != nil {
			t.Fatal(err)
		}
		if at, ok := plain(a); !ok || here(at) != want {
			t.Errorf("%s: %v", text, !want)
		}
	}
}

func TestHowManyTasksRun(t *testing.T) {
	if n, ok := runningTasks(); !ok || n < 1 {
		t.Errorf("%d, %v", n, ok)
	}
	for text, want := range map[string]int{
		"0.10 0.20 0.30 3/120 4711\n": 3,
		"0.00 0.00 0.00 0/0 0\n":      0, // gVisor
		"0.10 0.20 0.30 3":            0,
		"0.10 0.20 0.30":              0,
		"0.10 0.20 0.30 x/1 1":        0,
		"":                            0,
	} {
		if n, ok := parseRunning(text); n != want && ok || ok != (want > 0) {
			t.Errorf("%q: %d, %v", text, n, ok)
		}
	}
}

func TestAsLongAsIsConfiguredAClientMayTakeToHangUp(t *testing.T) {
	const apart = 40 * time.Millisecond
	for within, want := range map[time.Duration]string{0: "half of it", time.Minute: "old"} {
		t.Run(within.String(), func(t *testing.T) {
			s := start(t, busyMachine, func(o *setup) { o.delays.hangUp, o.settings.HangUp = time.Millisecond, within })
			s.write("/f", "old")
			c := s.as("phoneacc")
			c.half("/f")
			time.Sleep(apart)
			c.tcp.Close()
			s.alone()
			s.wantContent("/f", want)
		})
	}
}
