package config

import "strings"

// near returns the word that is most like the given one, or "" if none is.
func near(word string, words []string) string {
	word = plain(word)
	best, distance := "", len(word)/3+1
	for _, w := range words {
		if d := edits([]rune(word), []rune(w)); d <= distance && d < max(len(word), len(w)) {
			if d < distance || best == "" {
				best, distance = w, d
			}
		}
	}
	return best
}

// plain removes differences in case and separators.
func plain(word string) string {
	return strings.ToLower(strings.NewReplacer("-", "_", " ", "_").Replace(word))
}

// edits returns the number of letters to add, remove, change or swap with their neighbour to get from a to b (optimal string alignment).
func edits(a, b []rune) int {
	if len(a) > 64 || len(b) > 64 {
		return 64 // no typing error
	}
	var before, last, now []int
	for j := range len(b) + 1 {
		last = append(last, j)
	}
	for i := range a {
		now = append(now[:0:0], i+1)
		for j := range b {
			d := last[j]
			if a[i] != b[j] {
				d++
			}
			d = min(d, last[j+1]+1, now[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				d = min(d, before[j-1]+1)
			}
			now = append(now, d)
		}
		before, last = last, now
	}
	return last[len(b)]
}
