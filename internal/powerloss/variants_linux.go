package powerloss

import (
	"bytes"
	"math/rand/v2"
	"slices"
)

// sector is what a disk writes in one piece.
const sector = 512

// How much of what can become of one file is tried.
const (
	everyByte = 48 // a tail of so many bytes ends at each of them
	someCuts  = 8
	everyHole = 3 // so many sectors are lost in every combination
	someHoles = 6
)

// variants returns what a file may contain whose content before is sure and to which the others were given one after
// the other: first that before, last the last one.
func variants(before []byte, others [][]byte, random *rand.Rand) [][]byte {
	last := others[len(others)-1]
	all := [][]byte{before}
	all = append(all, others[:len(others)-1]...)
	if from := common(before, last); from < len(last) {
		for _, cut := range cuts(from, others, random) {
			all = append(all, torn(before, last, cut))
		}
		all = append(all, holes(before, last, from, random)...)
	}
	all = append(all, last)
	var different [][]byte
	for i, v := range all {
		if i == len(all)-1 || !slices.ContainsFunc(all[i+1:], func(o []byte) bool { return bytes.Equal(v, o) }) || i == 0 {
			different = append(different, v)
		}
	}
	return different
}

// common returns how many bytes two contents begin with alike. It compares sectors first, which takes less time under the race detector.
func common(a, b []byte) (n int) {
	for n+sector <= min(len(a), len(b)) && bytes.Equal(a[n:n+sector], b[n:n+sector]) {
		n += sector
	}
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// torn returns the last content as far as the cut, behind it what was there before.
func torn(before, last []byte, cut int) []byte {
	return append(slices.Clone(last[:cut]), before[min(cut, len(before)):]...)
}

// cuts returns the places, from the first byte that differs on, at which what is new may end: not behind the last of the others,
// or the zeros that it ends with.
func cuts(from int, others [][]byte, random *rand.Rand) (all []int) {
	last := others[len(others)-1]
	to := len(last)
	if used := len(bytes.TrimRight(last, "\x00")); used > from {
		to = min(to, used+1)
	}
	if to-from <= everyByte {
		for n := from; n < to; n++ {
			all = append(all, n)
		}
		return all
	}
	for _, o := range others {
		n := common(o, last) // where the next one was begun
		all = append(all, n-1, n+1, len(o)-1, len(o)+1)
	}
	for n := from - from%sector; n < to; n += sector {
		all = append(all, n)
	}
	for range someCuts {
		all = append(all, from+random.IntN(to-from))
	}
	return slices.DeleteFunc(all, func(n int) bool { return n < from || n >= to })
}

// holes returns the last content with sectors, from the first byte that differs on, in which is what was there before: zeros
// where there was nothing.
func holes(before, last []byte, from int, random *rand.Rand) (all [][]byte) {
	first := from / sector
	to := max(from+1, len(bytes.TrimRight(last, "\x00")))
	n := (to+sector-1)/sector - first
	hole := func(lost func(int) bool) {
		content := slices.Clone(last)
		for i := range n {
			start, end := max(from, (first+i)*sector), min(len(last), (first+i+1)*sector)
			if !lost(i) {
				continue
			}
			clear(content[start:end])
			copy(content[start:end], before[min(start, len(before)):])
		}
		all = append(all, content)
	}
	if n <= everyHole {
		for set := 1; set < 1<<n; set++ {
			hole(func(i int) bool { return set>>i&1 == 1 })
		}
		return all
	}
	for i := range min(n, someHoles) {
		hole(func(j int) bool { return i == j })
	}
	for range someHoles {
		hole(func(int) bool { return random.IntN(2) == 0 })
	}
	return all
}
