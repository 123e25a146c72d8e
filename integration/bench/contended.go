//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// oneLock has n clients want the same lock, over and over, each giving it back as soon as it has it. One that is refused
// tries again at once; if they wait, the server answers when it is their turn. It returns turns per second, how many
// clients had one, the fewest and the most turns of a client, and how many of a hundred tries were in vain.
func oneLock(ctx context.Context, p *process, n int, d time.Duration, wait bool) ([]float64, error) {
	all, err := gather(ctx, p, n)
	if err != nil {
		return nil, err
	}
	defer all.close()
	if wait {
		if err := all.patient(d); err != nil {
			return nil, err
		}
	}
	turns, tries := make([]int, n), make([]int, n)
	elapsed, err := all.work(d, func(i int, c *client, until time.Time) (err error) {
		turns[i], tries[i], err = c.turns(p.locks+"/wanted_lock", until)
		return err
	})
	if err != nil {
		return nil, err
	}
	return fairness(turns, tries, elapsed), nil
}

// fairness is what oneLock returns.
func fairness(turns, tries []int, elapsed time.Duration) []float64 {
	had := len(turns) - len(slices.DeleteFunc(slices.Clone(turns), func(t int) bool { return t > 0 }))
	vain := 0.0
	if all := sum(tries); all > 0 {
		vain = 100 * float64(all-sum(turns)) / float64(all)
	}
	return []float64{perSecond(sum(turns), elapsed), float64(had), float64(slices.Min(turns)), float64(slices.Max(turns)), vain}
}

// patient has the server let all of them wait for what is held, for longer than they work.
func (all crowd) patient(working time.Duration) error {
	seconds := int((working + patience/2).Seconds())
	for _, c := range all {
		if err := c.do(fmt.Sprintf("SITE WAIT %d", seconds)); err != nil {
			return err
		}
	}
	return nil
}

// turns counts how often the client got the lock, and how often it tried.
func (c *client) turns(name string, until time.Time) (turns, tries int, err error) {
	acquire, release := "MKD "+name, "RMD "+name
	for time.Now().Before(until) {
		tries++
		code, err := c.ask(acquire)
		switch {
		case err != nil:
			return turns, tries, err
		case code == 257:
			turns++
			if err := c.do(release); err != nil {
				return turns, tries, err
			}
		case code != 550:
			return turns, tries, fmt.Errorf("%s: %d", acquire, code)
		}
	}
	return turns, tries, nil
}
