package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestThePageHasEveryStatusAndEveryCommand(t *testing.T) {
	data, err := os.ReadFile("../../docs/netlock.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	for _, line := range strings.Split(statusText, "\n") {
		m := regexp.MustCompile(`^  (\d\S*(?: \d+)?)  +(.*)$`).FindStringSubmatch(line)
		if m != nil && !strings.Contains(strings.ReplaceAll(page, "`", ""), "| "+m[1]+" | "+strings.ReplaceAll(m[2], `"`, "")+" |") {
			t.Errorf("the status is not in docs/netlock.md: %s", line)
		}
	}
	for _, c := range newRootCommand().Commands() {
		if !c.Hidden && c.Name() != "help" && c.Name() != "completion" && !strings.Contains(page, "netlock "+c.Name()) {
			t.Errorf("the command %s is not in docs/netlock.md", c.Name())
		}
	}
}
