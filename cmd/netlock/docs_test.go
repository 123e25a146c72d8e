package main

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

func TestThePageHasEveryKeyAndEveryStatus(t *testing.T) {
	data, err := os.ReadFile("../../docs/netlock.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	for field := range reflect.TypeFor[profile]().Fields() {
		key := field.Tag.Get("toml")
		if !regexp.MustCompile("(?m)^\\|[^|]*`" + key + "`").MatchString(page) {
			t.Errorf("the key %s is not in the table of docs/netlock.md", key)
		}
	}
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
