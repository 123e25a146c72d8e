//go:build linux && !race

package cluster

const raceEnabled = false
