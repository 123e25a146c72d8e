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
	if bytes.HasPrefix(last, before) {
		for _, cut := range cuts(len(before), others, random) {
			all = append(all, last[:cut])
		}
		all = append(all, holes(before, last, random)...)
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

// cuts returns the lengths at which a tail behind the first bytes may end.
func cuts(from int, others [][]byte, random *rand.Rand) (all []int) {
	to := len(others[len(others)-1])
	if to-from <= everyByte {
		for n := from; n < to; n++ {
			all = append(all, n)
		}
		return all
	}
	for _, o := range others {
		all = append(all, len(o)-1, len(o)+1)
	}
	for n := from - from%sector; n < to; n += sector {
		all = append(all, n)
	}
	for range someCuts {
		all = append(all, from+random.IntN(to-from))
	}
	return slices.DeleteFunc(all, func(n int) bool { return n < from || n >= to })
}

// holes returns the last content with sectors in it that were never written.
func holes(before, last []byte, random *rand.Rand) (all [][]byte) {
	first := len(before) / sector
	n := (len(last)+sector-1)/sector - first
	hole := func(lost func(int) bool) {
		content := slices.Clone(last)
		for i := range n {
			if from := max(len(before), (first+i)*sector); lost(i) {
				clear(content[from:min(len(last), (first+i+1)*sector)])
			}
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
