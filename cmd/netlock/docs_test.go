package main

import (
	"os"
	"strings"
	"testing"
)

func TestThePageHasEveryCommand(t *testing.T) {
	page, err := os.ReadFile("../../docs/netlock.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range newRootCommand().Commands() {
		if !c.Hidden && c.Name() != "help" && c.Name() != "completion" && !strings.Contains(string(page), "netlock "+c.Name()) {
			t.Errorf("docs/netlock.md does not have the command %s", c.Name())
		}
	}
}
