package journal

import (
	"context"
	"testing"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// BenchmarkAppend measures the time that a record takes under the table's mutex.
func BenchmarkAppend(b *testing.B) {
	s := newScene(b)
	s.options = func(o *Options) { o.Durable, o.Size, o.wrap = false, DefaultSize, nil }
	l := s.mustOpen()
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
