package config

import (
	"fmt"
	"net"
	"net/url"
	"reflect"
	"strings"
	"time"
)

// shortestTTL is the shortest lease of etcd.
const shortestTTL = 2 * time.Second

func (c *checker) checkEtcd() {
	e := &c.Etcd
	if !e.On() {
		if !reflect.DeepEqual(*e, Default().Etcd) {
			c.fail("etcd.endpoints", `missing: the members of etcd, such as ["https://10.0.0.1:2379"]`)
		}
		return
	}
	if c.Locks.Directories {
		c.fail("locks.directories", "must be false with [etcd]: a directory on one host excludes no other server; leave it out")
	}
	c.checkEndpoints()
	if !strings.HasPrefix(e.Prefix, "/") || !strings.HasSuffix(e.Prefix, "/") || hasControl(e.Prefix) {
		c.fail("etcd.prefix", `%q: must begin and end with "/", such as "/ftplockd/"`, e.Prefix)
	}
	for _, element := range strings.Split(e.Prefix, "/") {
		if element == "lock" || element == "history" || element == "leader" || element == "not-ready" {
			c.fail("etcd.prefix", "%q: has the element %q, so its keys could be those of servers with a shorter prefix; rename it", e.Prefix, element)
		}
	}
	c.checkEtcdTimes()
	c.checkPair("etcd.certificate", e.Certificate, "etcd.key", e.Key)
	c.checkPair("etcd.user", e.User, "etcd.password_file", e.PasswordFile)
	if e.Certificate+e.Key+e.CA != "" && !e.TLS() {
		c.fail("etcd.endpoints", "no endpoint begins with https://, so the certificates would not be used")
	}
	c.checkSharedState()
}

func (c *checker) checkEndpoints() {
	seen := make(map[string]int)
	for i, endpoint := range c.Etcd.Endpoints {
		at := fmt.Sprintf("etcd.endpoints[%d]", i+1)
		u, err := url.Parse(endpoint)
		switch {
		case strings.Contains(endpoint, "@"): // an error must not contain the password
			c.fail(at, "must not contain a user: write etcd.user and etcd.password_file")
			continue
		case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Port() == "" || u.Scheme+"://"+u.Host != endpoint:
			c.fail(at, `%q: must be the URL of a member, such as "https://10.0.0.1:2379"`, endpoint)
			continue
		case !isHost(u.Hostname()):
			c.fail(at, "%q: %q is no address and no host name", endpoint, u.Hostname())
		case seen[u.Host] != 0:
			c.fail(at, "%q: already in etcd.endpoints[%d]", endpoint, seen[u.Host])
		case u.Scheme == "http" && c.Etcd.User != "" && !isLoopback(u.Hostname()):
			c.warn(at, "%q: the password crosses the network in the clear", endpoint)
		}
		seen[u.Host] = i + 1
	}
}

func isLoopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// checkEtcdTimes reports times that do not fit together: each slow request would suspend a server that cannot settle an unknown outcome before its
// lease ends.
func (c *checker) checkEtcdTimes() {
	e := &c.Etcd
	switch ttl := e.TTL.Duration; {
	case ttl < shortestTTL || ttl%time.Second != 0:
		c.fail("etcd.ttl", `%q: must be whole seconds, at least %s`, e.TTL, Duration{shortestTTL})
	case e.RequestTimeout.Duration <= 0 || e.RequestTimeout.Duration >= ttl/4:
		c.fail("etcd.request_timeout", "%q: must be less than a quarter of etcd.ttl %q: less than %s", e.RequestTimeout, e.TTL, Duration{ttl / 4})
	case e.Margin.Duration >= ttl/2:
		c.fail("etcd.margin", "%q: must be less than half of etcd.ttl, which is %s", e.Margin, Duration{ttl / 2})
	}
}

// checkPair reports a key that is set without the other one.
func (c *checker) checkPair(key, value, other, with string) {
	switch {
	case value != "" && with == "":
		c.fail(other, "missing: %s needs it", key)
	case value == "" && with != "":
		c.fail(key, "missing: %s needs it", other)
	}
}

func (c *checker) checkSharedState() {
	dir := c.Etcd.SharedState
	switch {
	case dir == "" || c.Root == "" || c.State == "":
	case strings.ContainsRune(dir, 0):
		c.fail("etcd.shared_state", "must not contain a NUL")
	case inside(dir, c.Root):
		c.fail("etcd.shared_state", "%q lies inside root %q, where clients would see it", dir, c.Root)
	case inside(c.Root, dir):
		c.fail("etcd.shared_state", "root %q lies inside it", c.Root)
	case inside(dir, c.State), inside(c.State, dir):
		c.fail("etcd.shared_state", "must not be inside state %q, nor state inside it: state belongs to one server", c.State)
	}
}
