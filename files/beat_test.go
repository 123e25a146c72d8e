package files

import (
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// All transfers of one Step share a timer, and it ends with them.
func TestTransfersShareATimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all beats
		told := make([]int64, 3)
		var watches []*watch
		for i := range told {
			a, b := net.Pipe()
			defer a.Close()
			defer b.Close()
			watches = append(watches, all.watchRead(b, Pace{Step: time.Second, Progress: func(n int64) { told[i] += n }}))
			time.Sleep(100 * time.Millisecond)
		}
		one := all.byStep[time.Second]
		if len(all.byStep) != 1 || len(one.watches) != 3 {
			t.Fatalf("%d timers, %d transfers of the first", len(all.byStep), len(one.watches))
		}
		for i, w := range watches {
			w.moved.Add(int64(i + 1))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if told[0] != 1 || told[1] != 2 || told[2] != 3 {
			t.Errorf("told %v", told)
		}
		for _, w := range watches {
			w.moved.Add(10)
			w.stop()
			w.moved.Add(100)
			w.look() // one that was under way
		}
		if told[0] != 11 || told[1] != 12 || told[2] != 13 {
			t.Errorf("told %v at the end", told)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if one.running || told[0] != 11 {
			t.Errorf("it is looked at after the end: %v, told %v", one.running, told)
		}
	})
}

// The timer that ran out is wound up again for the next transfer.
func TestATransferAfterAPauseIsWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, Options{})
		for range 2 {
			a, b := net.Pipe()
			u, err := s.Upload("/f", UploadOptions{Pace: Pace{Timeout: 10 * time.Second, Step: time.Second}})
			if err != nil {
				t.Fatal(err)
			}
			go func() { io.WriteString(a, "x") }()
			start := time.Now()
			if _, err := u.ReadFrom(b); err == nil || time.Since(start) > 12*time.Second {
				t.Errorf("%v after %v", err, time.Since(start))
			}
			if err := u.Discard(); err != nil {
				t.Error(err)
			}
			a.Close()
			b.Close()
			time.Sleep(time.Minute)
		}
	})
}
