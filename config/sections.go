package config

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"
)

// hostAccount is the owner of locks that programs on the host made. No account may have this name.
const hostAccount = "host"

func (c *checker) checkAccounts() {
	seen := make(map[string]int)
	for i, a := range c.Accounts {
		key := fmt.Sprintf("account[%d].", i+1)
		c.checkAccountName(key+"name", a.Name, seen[a.Name])
		seen[a.Name] = i + 1
		if a.Password == "" {
			c.fail(key+"password", `missing: make one with "ftplockd passwd"`)
		} else if _, err := parseHash(a.Password); err != nil {
			c.fail(key+"password", "%s", err)
		}
		if !isServedPath(a.Home) {
			c.fail(key+"home", `%q: must be an absolute path in the served tree, such as "/" or "/phone"`, a.Home)
		}
		if !isServedPath(a.Start) {
			c.fail(key+"start", `%q: must be an absolute path as the account sees it, such as "/"`, a.Start)
		}
	}
}

// checkAccountName reports a name that cannot be used. before is the number of an account with the same name, or 0.
func (c *checker) checkAccountName(key, name string, before int) {
	switch {
	case name == "":
		c.fail(key, "missing: the name that the client gives with USER")
	case before != 0:
		c.fail(key, "%q: account %d has that name already", name, before)
	case name == hostAccount:
		c.fail(key, "%q: is the owner of locks that programs on the host made; choose another name", name)
	case strings.TrimSpace(name) != name || hasControl(name):
		c.fail(key, "%q: must not begin or end with a space or contain control characters", name)
	}
}

// checkHTTP requires TLS for logins over a network.
func (c *checker) checkHTTP() {
	if c.HTTP.Listen != "" && !c.HTTP.OnLoopback() && c.TLS.Mode == TLSOff {
		c.fail("http.listen", "%q: an address other than loopback needs a certificate: see [tls]", c.HTTP.Listen)
	}
}

// OnLoopback reports whether only programs on the server's machine can connect to the page.
func (h HTTP) OnLoopback() bool {
	host, _, _ := net.SplitHostPort(h.Listen) // "" is not on loopback
	return isLoopback(host)
}

func (c *checker) checkHooks() {
	for i, h := range c.Hooks {
		key := fmt.Sprintf("hook[%d].", i+1)
		if len(h.On) == 0 {
			c.fail(key+"on", "missing: one or more of %s", strings.Join(HookEvents, ", "))
		}
		for j, on := range h.On {
			c.checkAllowed(fmt.Sprintf("%son[%d]", key, j+1), on, HookEvents)
		}
		if h.Match != "" && !doublestar.ValidatePattern(h.Match) {
			c.fail(key+"match", "%q: is no glob", h.Match)
		}
		switch {
		case len(h.Run) == 0 && h.URL == "":
			c.fail(key+"run", `missing: the program to run, such as ["/usr/local/bin/told"], or a url`)
		case len(h.Run) > 0 && h.URL != "":
			c.fail(key+"url", "run is set, too: write two hooks")
		case h.URL == "" && !filepath.IsAbs(h.Run[0]):
			c.fail(key+"run[1]", "%q: must be an absolute path", h.Run[0])
		case h.URL != "" && !isWebAddress(h.URL):
			c.fail(key+"url", `must be an address such as "https://example.org/told"`) // without the URL, which may be a secret
		}
		if h.Timeout.Duration == 0 {
			c.fail(key+"timeout", "must not be 0: a hook could hang for ever")
		}
	}
}

func isWebAddress(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

func (c *checker) checkRules() {
	if len(c.Rules) == 0 {
		c.fail("lock", "no rule: nothing would be a lock; leave lock out for the default rules")
	}
	for i, r := range c.Rules {
		key := fmt.Sprintf("lock[%d].", i+1)
		if message := badMatch(r.Match); message != "" {
			c.fail(key+"match", "%s", message)
		}
		if r.Release == ReleaseSession && r.OnDisconnect == DisconnectKeep && r.MaxAge.Duration == 0 && r.MaxIdle.Duration == 0 {
			c.fail(key+"release", "no session could release such a lock after the end of its connection: "+
				`give it a max_age or a max_idle, or on_disconnect = "release"`)
		}
		if r.Wait.Duration > longestWait {
			c.warn(key+"wait", "%q: old clients give up earlier, Net::FTP after 120 s; other clients may send \"SITE WAIT seconds\"", r.Wait)
		}
		c.checkShared(key+"shared", r.Shared)
		if r.Grace.Duration > 0 && r.OnDisconnect == DisconnectKeep && !r.Automatic.On() {
			c.fail(key+"grace", `needs on_disconnect = "release" or automatic = true`)
		}
		if r.WriteAs == WriteAsAccount && len(r.Protects) == 0 {
			c.fail(key+"write_as", "needs protects")
		}
		if r.Automatic.On() {
			c.checkAutomatic(key, r)
			continue
		}
		if r.Turn != DefaultRule("").Turn {
			c.fail(key+"turn", "needs automatic = true")
		}
		if r.Job == JobSession {
			c.fail(key+"job", "needs automatic = true")
		}
	}
}

// checkAutomatic reports keys that an automatic rule must not have. Package lock reports two rules that can protect one path.
func (c *checker) checkAutomatic(key string, r Rule) {
	if len(r.Protects) == 0 {
		c.fail(key+"protects", `missing: automatic = true needs the files that the lock protects, such as ["/www/**"]`)
	}
	if r.Limit > 0 {
		c.fail(key+"limit", "is not allowed with automatic = true")
	}
	if len(r.Shared) > 0 {
		c.fail(key+"shared", "is not allowed with automatic = true: one job holds such a lock at a time")
	}
	if r.Wait.Duration > longestAutomaticWait && r.Wait.Duration <= longestWait {
		c.warn(key+"wait", "%q: listings wait, too; FileZilla gives up after 20 s, FTP-Deploy-Action after 30 s", r.Wait)
	}
}

// longestAutomaticWait is the longest listing that FileZilla waits for.
const longestAutomaticWait = 18 * time.Second

// checkIdleDefault warns of rules without max_age that leave max_idle out: their locks still end when they are idle. given has the keys of each rule
// in the file.
func (c *checker) checkIdleDefault(given []table) {
	for i, keys := range given {
		if c.Rules[i].MaxAge.Duration == 0 && keys.has("max_age") && !keys.has("max_idle") {
			c.warn(fmt.Sprintf("lock[%d].max_age", i+1),
				`"0": without max_idle, such a lock still ends %s after its holder's last sign of life; max_idle = "0" keeps it`, c.Rules[i].MaxIdle)
		}
	}
}

// longestWait is the longest wait for clients that give up after two minutes, as Net::FTP does.
const longestWait = 100 * time.Second

// checkShared reports names of unknown accounts. Without accounts any name may be that of the built-in one.
func (c *checker) checkShared(key string, names []string) {
	var known []string
	for _, a := range c.Accounts {
		known = append(known, a.Name)
	}
	for i, name := range names {
		at := fmt.Sprintf("%s[%d]", key, i+1)
		switch {
		case name == "":
			c.fail(at, "must be the name of an account")
		case len(known) > 0 && !slices.Contains(known, name):
			c.fail(at, "%q: no account has that name", name)
		}
	}
}

// badMatch returns the error of a glob that matches no lock, or "".
func badMatch(match string) string {
	switch {
	case match == "":
		return `missing: a glob over the names that are locks, such as "**/*_lock"`
	case !doublestar.ValidatePattern(match):
		return fmt.Sprintf("%q: is no glob; a bracket or brace is not closed", match)
	case match == "/":
		return `"/": the served tree itself is never a lock`
	case match != "**" && !strings.HasPrefix(match, "/") && !strings.HasPrefix(match, "**/") && !strings.HasPrefix(match, "{"):
		return fmt.Sprintf(`%q: matches no name: names begin with "/"; did you mean %q?`, match, "**/"+match)
	case strings.HasSuffix(match, "/"), strings.Contains(match, "//"),
		strings.Contains(match+"/", "/./"), strings.Contains(match+"/", "/../"):
		return fmt.Sprintf(`%q: matches no name: names have no "//", ".", ".." and no "/" at the end`, match)
	}
	return ""
}
