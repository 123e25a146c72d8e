package powerloss

import (
	"bytes"
	"math/rand/v2"
	"slices"
)

// sector is what a disk writes in one piece.
const sector = 512

// Bounds of the variants of one file.
const (
	everyByte = 48 // a tail of at most so many bytes is cut at each byte
	someCuts  = 8
	everyHole = 3 // of at most so many sectors each combination is lost
	someHoles = 6
)

// variants returns the possible contents of a file after a loss of power. before was synced; the others were written later, in order. The
// first variant is before, the last one is the last of the others.
func variants(before []byte, others [][]byte, random *rand.Rand) [][]byte {
	last := others[len(others)-1]
	all := [][]byte{before}
	all = append(all, others[:len(others)-1]...)
	if from := commonPrefix(before, last); from < len(last) {
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

// commonPrefix returns the number of bytes at the beginning that two contents share. It compares sectors first, which takes less time under the race detector.
func commonPrefix(a, b []byte) (n int) {
	for n+sector <= min(len(a), len(b)) && bytes.Equal(a[n:n+sector], b[n:n+sector]) {
		n += sector
	}
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// torn returns the last content up to the cut, followed by the content before.
func torn(before, last []byte, cut int) []byte {
	return append(slices.Clone(last[:cut]), before[min(cut, len(before)):]...)
}

// cuts returns the offsets at which the new content may end: from the first byte that differs up to the end of the last content without its
// zeros.
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
		n := commonPrefix(o, last) // the start of the next write
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

// holes returns the last content with lost sectors, from the first byte that differs on. A lost sector has the content before, or zeros.
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
