//go:build race

package integration

// raceEnabled says that this test runs with -race; the server is then built so, too.
const raceEnabled = true
