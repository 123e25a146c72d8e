//go:build race

package harness

// RaceEnabled says that this test runs with -race; the programs are then built so, too.
const RaceEnabled = true
