package main

import (
	"strings"
	"testing"
)

func TestNetrc(t *testing.T) {
	const file = `# machine h login comment password no
machine other login x password y
machine h login bob password s3cret
machine h
	login eve
	account none
	password "p \"w\\"
machine quotes login "" password a"b login "open \x
macdef init
machine h login no password no

machine empty password p
default login anonymous password me@
`
	for _, c := range []struct{ host, user, login, password string }{
		{"h", "", "bob", "s3cret"},
		{"h", "eve", "eve", `p "w\`},
		{"quotes", "", "open x", `a"b`},
		{"h", "zoe", "", ""},
		{"other", "x", "x", "y"},
		{"unknown", "", "anonymous", "me@"},
		{"empty", "", "anonymous", "me@"},
	} {
		login, password, err := searchNetrc(strings.NewReader(file), c.host, c.user)
		if err != nil || login != c.login || password != c.password {
			t.Errorf("%s, %q: %q %q %v", c.host, c.user, login, password, err)
		}
	}
}
