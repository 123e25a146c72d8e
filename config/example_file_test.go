package config

import (
	"reflect"
	"regexp"
	"strings"
	"testing"
)

func TestExampleEqualsTheDefault(t *testing.T) {
	got, err := Parse(Example(), "example.toml")
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, Default()) {
		t.Errorf("got  %+v\nwant %+v", got, Default())
	}
}

// uncommented returns the example with its sample sections as real ones.
func uncommented() []byte {
	shown := regexp.MustCompile(`(?m)^# (?:# )?(#.*|\w+ = .*|\[\[account\]\]|\[\[hook\]\])?$`)
	text := strings.ReplaceAll(string(Example()), "# # ", "# ")
	return shown.ReplaceAll([]byte(text), []byte("$1"))
}

func TestSampleSectionsShowTheDefaults(t *testing.T) {
	got, err := Parse(uncommented(), "example.toml")
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	if len(got.Accounts) != 1 {
		t.Fatal("the sample account is not in the form that this test uncomments")
	}
	sample := got.Accounts[0]
	if len(got.Hooks) != 1 {
		t.Fatal("the sample hook is not in the form that this test uncomments")
	}
	hook := DefaultHook()
	hook.On, hook.Run = got.Hooks[0].On, got.Hooks[0].Run
	want.Hooks = []Hook{hook}
	want.Accounts = []Account{DefaultAccount(sample.Name, sample.Password)}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// exampleKeys returns the comment above each key of the example, by the key's kind.
func exampleKeys(t *testing.T) map[string]string {
	comments := make(map[string]string)
	section, comment, live := "", "", true
	header, key := regexp.MustCompile(`^(# )?\[+(\w+)\]+$`), regexp.MustCompile(`^(# )?(\w+) = `)
	for line := range strings.Lines(string(Example())) {
		line = strings.TrimSuffix(line, "\n")
		if m := header.FindStringSubmatch(line); m != nil {
			section, comment = m[2]+".", ""
		} else if m := key.FindStringSubmatch(line); m != nil {
			if _, twice := comments[section+m[2]]; !twice {
				comments[section+m[2]] = comment
			}
			live = m[1] == ""
			if !live && section != "account." && section != "hook." {
				t.Errorf("%s%s is commented out without a reason", section, m[2])
			}
		} else if line == "" || line == "#" {
			comment = ""
		} else {
			comment += line + "\n"
		}
	}
	return comments
}

func TestExampleExplainsEveryKey(t *testing.T) {
	comments := exampleKeys(t)
	all := Default()
	all.Accounts, all.Hooks = []Account{{}}, []Hook{{}}
	kinds := make(map[string]bool)
	walk(all, func(f field) {
		kinds[f.kind] = true
		comment, ok := comments[f.kind]
		switch {
		case !ok:
			t.Errorf("%s is not in the example", f.key)
		case comment == "" && f.key != "lock[2].match" && f.kind != "tls.key":
			t.Errorf("%s has no comment", f.key)
		}
		for value := range strings.SplitSeq(f.tag.Get("enum"), ",") {
			if value != "" && !strings.Contains(comment, `"`+value+`"`) {
				t.Errorf("%s: the comment does not name %q", f.key, value)
			}
		}
		if marked := strings.HasSuffix(comment, ". restart\n"); marked != (f.tag.Get("restart") != "") {
			t.Errorf("%s: the comment and the field do not agree about restart", f.key)
		}
	})
	for kind := range comments {
		if !kinds[kind] {
			t.Errorf("the example has %s, which is no key", kind)
		}
	}
}
