//go:build linux

package main

import (
	"fmt"
	"slices"
	"time"
)

// rates returns how many there were per second, and the median and the 99th percentile of their times in nanoseconds.
func rates(took [][]time.Duration, elapsed time.Duration) []float64 {
	times := slices.Concat(took...)
	slices.Sort(times)
	return []float64{perSecond(len(times), elapsed), float64(percentile(times, 50)), float64(percentile(times, 99))}
}

func perSecond(n int, elapsed time.Duration) float64 { return float64(n) / elapsed.Seconds() }

// percentile returns the smallest of the sorted values that so many percent of them do not exceed (nearest rank); 0 of none.
func percentile[T any](sorted []T, percent int) (value T) {
	if len(sorted) == 0 {
		return value
	}
	rank := (len(sorted)*percent + 99) / 100
	return sorted[max(rank, 1)-1]
}

// median is the middle one of the values, or the mean of the two in the middle; 0 of none.
func median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

func sum(all []int) (total int) {
	for _, n := range all {
		total += n
	}
	return total
}

// spread is half the distance between the least and the greatest value, as a part of the median; 0 of none.
func spread(values []float64) float64 {
	m := median(values)
	if m == 0 {
		return 0
	}
	return (slices.Max(values) - slices.Min(values)) / 2 / m
}

// unit is what values are counted in.
type unit string

const (
	perSec          unit = "1/s"
	megabytesPerSec unit = "MB/s"
	nanoseconds     unit = "ns"
	kibibytes       unit = "KiB"
	mebibytes       unit = "MiB"
	percent         unit = "%"
	things          unit = "" // a number of them
)

// format writes a value as a person reads it.
func (u unit) format(v float64) string {
	switch u {
	case nanoseconds:
		return short(v)
	case kibibytes, mebibytes, percent:
		return fmt.Sprintf("%.1f", v)
	case things:
		return fmt.Sprintf("%.0f", v)
	}
	return count(v)
}

// count writes a number of things: whole ones, unless they are few.
func count(v float64) string {
	if v < 10 {
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// short writes nanoseconds with three digits or so.
func short(nanoseconds float64) string {
	d := time.Duration(nanoseconds)
	switch {
	case d < 10*time.Microsecond:
		return fmt.Sprintf("%.1f us", float64(d)/1e3)
	case d < time.Millisecond:
		return fmt.Sprintf("%d us", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%.1f ms", float64(d)/1e6)
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}
