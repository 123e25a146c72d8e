package integration

// runChild is this test binary as one of the Go clients.
func runChild(string, []string) int { return 2 }
