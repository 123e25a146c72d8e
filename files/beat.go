package files

import (
	"sync"
	"time"
)

// beats look after all transfers of a tree, with one timer for those of one Step. A timer for each would cost a small
// transfer dearly: the runtime wakes a thread that sleeps until the earliest timer whenever there is an earlier one.
// The zero value is ready.
type beats struct {
	mu     sync.Mutex
	byStep map[time.Duration]*beat
}

// beat has every transfer of one Step looked at once in each. Its timer runs on for a Step after the last of them, so
// that transfers one after the other share it, too.
type beat struct {
	step    time.Duration
	mu      sync.Mutex
	watches map[*watch]struct{}
	timer   *time.Timer
	running bool
}

// join has w looked at until it leaves.
func (b *beats) join(step time.Duration, w *watch) *beat {
	b.mu.Lock()
	one := b.byStep[step]
	if one == nil {
		if b.byStep == nil {
			b.byStep = make(map[time.Duration]*beat)
		}
		one = &beat{step: step, watches: make(map[*watch]struct{})}
		b.byStep[step] = one
	}
	b.mu.Unlock()
	one.mu.Lock()
	defer one.mu.Unlock()
	one.watches[w] = struct{}{}
	if one.running {
		return one
	}
	one.running = true
	if one.timer == nil {
		one.timer = time.AfterFunc(step, one.look)
	} else {
		one.timer.Reset(step)
	}
	return one
}

// leave takes w out. A look at it may still be under way.
func (b *beat) leave(w *watch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.watches, w)
}

func (b *beat) look() {
	for _, w := range b.list() {
		w.look()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running = len(b.watches) > 0
	if b.running {
		b.timer.Reset(b.step)
	}
}

func (b *beat) list() []*watch {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := make([]*watch, 0, len(b.watches))
	for w := range b.watches {
		list = append(list, w)
	}
	return list
}
