package journal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

func benchScene(b *testing.B, durable bool) *Log {
	s := newScene(b)
	s.options = func(o *Options) { o.Durable, o.Size, o.wrap = durable, DefaultSize, nil }
	return s.mustOpen()
}

// BenchmarkAppend measures the time that a record takes under the table's mutex.
func BenchmarkAppend(b *testing.B) {
	l := benchScene(b, false)
	s := newScene(b)
	grant := []lock.Record{s.granted("/locks/phone_lock", 1)}
	end := []lock.Record{s.ended(grant[0].Hold)}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		grant[0].Hold.Token++
		end[0].Hold.Token++
		l.Append(grant)
		position := l.Append(end)
		if i%64 == 0 {
			b.StopTimer()
			if err := l.Wait(context.Background(), position, false); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	}
}

// BenchmarkRewrite measures how long grants wait while 100,000 locks are rewritten every two seconds.
func BenchmarkRewrite(b *testing.B) {
	for _, durable := range []bool{false, true} {
		b.Run(fmt.Sprintf("durable=%t", durable), func(b *testing.B) {
			const locks, callers = 100_000, 8
			l := benchScene(b, durable)
			s := newScene(b)
			t := s.table(l)
			ctx, cancel := context.WithCancel(context.Background())
			for i := range locks {
				t.mu.Lock()
				for !l.Room(t.last + 1) {
					if err := l.MakeRoom(ctx, t.last+1); err != nil {
						b.Fatal(err)
					}
				}
				t.last++
				r := s.granted(lock.Name(fmt.Sprintf("/locks/%d_lock", i)), t.last)
				t.holds[t.last] = r.Hold
				l.Append([]lock.Record{r})
				t.mu.Unlock()
			}
			s.settled(l)
			var all sync.WaitGroup
			rewrites := 0
			all.Go(func() {
				for every := time.NewTicker(2 * time.Second); ctx.Err() == nil; <-every.C {
					if err := l.turn(); err != nil {
						b.Error(err)
					}
					rewrites++
				}
			})
			waits := make([][]time.Duration, callers)
			var clients sync.WaitGroup
			b.ResetTimer()
			for i := range callers {
				clients.Go(func() {
					for range b.N/callers + 1 {
						began := time.Now()
						h, err := t.acquire(ctx, "/a_lock")
						waits[i] = append(waits[i], time.Since(began))
						if err = errors.Join(err, t.release(ctx, h)); err != nil {
							b.Error(err)
						}
					}
				})
			}
			clients.Wait()
			b.StopTimer()
			cancel()
			all.Wait()
			every := slices.Concat(waits...)
			slices.Sort(every)
			b.ReportMetric(float64(every[len(every)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(every[len(every)*99/100].Microseconds()), "p99-µs")
			b.ReportMetric(float64(every[len(every)-1].Microseconds()), "max-µs")
			b.ReportMetric(float64(rewrites), "rewrites")
		})
	}
}
