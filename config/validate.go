package config

import (
	"fmt"
	"net"
	"net/netip"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Validate returns all errors of a configuration as an [Errors] without file and lines, or nil. [Parse] calls it, too. Call it after a change, by
// flags for instance. It follows symbolic links to check whether Root, State, the key of TLS and SharedState lie inside each other, and reads nothing
// else outside the configuration.
func (c *Config) Validate() error {
	check := checker{Config: c}
	check.checkAll()
	if len(check.errs) > 0 {
		return check.errs
	}
	return nil
}

// checker collects the errors and warnings of one configuration.
type checker struct {
	*Config
	errs, warnings Errors // without file and line
}

func (c *checker) fail(key, format string, args ...any) {
	c.errs = append(c.errs, Error{Key: key, Message: fmt.Sprintf(format, args...)})
}

func (c *checker) warn(key, format string, args ...any) {
	c.warnings = append(c.warnings, Error{Key: key, Message: "warning: " + fmt.Sprintf(format, args...)})
}

func (c *checker) checkAll() {
	walk(c.Config, func(f field) {
		c.checkEnum(f)
		c.checkSign(f)
	})
	c.checkListen()
	c.checkDirectories()
	c.checkFTP()
	c.checkHTTP()
	c.checkTLS()
	c.checkFiles()
	c.checkEtcd()
	c.checkAccounts()
	c.checkRules()
	c.checkHooks()
}

func (c *checker) checkFiles() {
	if c.Files.HangUp.Duration == 0 {
		c.warn("files.hang_up", "\"0s\": the server publishes incomplete uploads of killed clients")
	}
	switch mode := c.Files.Mode.FileMode; {
	case mode&^0o777 != 0:
		c.fail("files.mode", "%#o: must be permission bits, at most 0777", uint32(mode))
	case mode&0o600 != 0o600:
		c.fail("files.mode", `"%04o": the server owns the files and must be able to read and write them`, uint32(mode))
	}
}

func (c *checker) checkEnum(f field) {
	if f.tag.Get("enum") == "" {
		return
	}
	c.checkAllowed(f.key, f.value.String(), strings.Split(f.tag.Get("enum"), ","))
}

// checkAllowed reports a value that is not allowed.
func (c *checker) checkAllowed(key, value string, allowed []string) {
	if !slices.Contains(allowed, value) {
		c.fail(key, "%q: must be one of %s", value, strings.Join(allowed, ", "))
	}
}

func (c *checker) checkSign(f field) {
	if f.value.Kind() == reflect.Int && f.value.Int() < 0 {
		c.fail(f.key, "%d: must not be negative", f.value.Int())
	}
}

func (c *checker) checkListen() {
	if len(c.Listen) == 0 && len(c.TLS.ImplicitListen) == 0 {
		c.fail("listen", `no address to listen on; the default is ["127.0.0.1:2121"]`)
	}
	seen := make(map[string]string)
	c.checkAddresses("listen", c.Listen, seen)
	c.checkAddresses("tls.implicit_listen", c.TLS.ImplicitListen, seen)
	if c.HTTP.Listen != "" {
		c.checkAddress("http.listen", c.HTTP.Listen, seen)
	}
}

func (c *checker) checkAddresses(key string, addresses []string, seen map[string]string) {
	for i, address := range addresses {
		c.checkAddress(fmt.Sprintf("%s[%d]", key, i+1), address, seen)
	}
}

func (c *checker) checkAddress(at, address string, seen map[string]string) {
	host, text, err := net.SplitHostPort(address)
	port, portErr := strconv.ParseUint(text, 10, 16)
	switch {
	case err != nil:
		c.fail(at, `%q: must be "host:port", such as "127.0.0.1:2121" or ":2121"`, address)
	case portErr != nil:
		c.fail(at, "%q: the port must be a number up to 65535", address)
	case host != "" && !isHost(host):
		c.fail(at, "%q: %q is no address and no host name", address, host)
	case seen[address] != "" && port != 0:
		c.fail(at, "%q: already in %s", address, seen[address])
	case c.FTP.PassivePorts.contains(port):
		c.warn(at, "port %d is one of ftp.passive_ports, too", port)
	}
	seen[address] = at
}

func (c *checker) checkDirectories() {
	key := "state" // or root, if state is the default
	if c.State == Default().State {
		key = "root"
	}
	switch {
	case c.Root == "":
		c.fail("root", "missing: the directory that clients see")
	case c.State == "":
		c.fail("state", "missing: the directory for the server's own files")
	case strings.ContainsRune(c.Root, 0):
		c.fail("root", "must not contain a NUL")
	case strings.ContainsRune(c.State, 0):
		c.fail("state", "must not contain a NUL")
	case realPath(c.Root) == realPath(c.State):
		c.fail(key, "root and state must not be the same directory")
	case inside(c.State, c.Root):
		c.fail(key, "state %q lies inside root %q, where clients would see it", c.State, c.Root)
	case inside(c.Root, c.State):
		c.fail(key, "root %q lies inside state %q", c.Root, c.State)
	}
}

// inside reports whether a directory lies below another.
func inside(dir, other string) bool {
	below, err := filepath.Rel(realPath(other), realPath(dir))
	return err == nil && below != ".." && !strings.HasPrefix(below, ".."+string(filepath.Separator))
}

// realPath returns the absolute path of a directory, and resolves the links in the part of it that exists.
func realPath(dir string) string {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return dir
	}
	missing := ""
	for existing := dir; ; existing = filepath.Dir(existing) {
		if real, err := filepath.EvalSymlinks(existing); err == nil {
			return filepath.Join(real, missing)
		} else if existing == filepath.Dir(existing) {
			return dir
		}
		missing = filepath.Join(filepath.Base(existing), missing)
	}
}

func (c *checker) checkFTP() {
	if host := c.FTP.PublicAddress; host != "" {
		if ip, err := netip.ParseAddr(host); err == nil && !ip.Is4() {
			c.fail("ftp.public_address", "%q: PASV returns IPv4 addresses only (RFC 959); IPv6 clients use EPSV and need none", host)
		} else if !isHost(host) {
			c.fail("ftp.public_address", "%q: must be an IPv4 address or a host name, without a port", host)
		}
	}
	if p := c.FTP.StatusFile; p != "" && (!isServedPath(p) || p == "/") {
		c.fail("ftp.status_file", `%q: must be an absolute path, such as "/.locks.json", or ""`, p)
	}
}

func (c *checker) checkTLS() {
	if c.TLS.Mode == TLSOff {
		if len(c.TLS.ImplicitListen) > 0 {
			c.fail("tls.implicit_listen", "needs tls.mode optional or required")
		}
		if c.TLS.SessionReuse == ReuseRequired {
			c.fail("tls.session_reuse", "needs tls.mode optional or required")
		}
		return
	}
	if c.TLS.Certificate == "" {
		c.fail("tls.certificate", "missing: tls.mode %q needs a certificate", c.TLS.Mode)
	}
	if c.TLS.Key == "" {
		c.fail("tls.key", "missing: tls.mode %q needs the certificate's key", c.TLS.Mode)
	} else if c.Root != "" && inside(c.TLS.Key, c.Root) {
		c.warn("tls.key", "lies inside root, where clients can read it")
	}
}

// isHost reports whether a text is an address or has the form of a host name.
func isHost(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil || len(host) <= 253 && hostName.MatchString(host)
}

var hostName = regexp.MustCompile(`^[\w-]{1,63}(\.[\w-]{1,63})*\.?$`)

// isServedPath reports whether a text is an absolute, clean path in the served tree.
func isServedPath(p string) bool {
	return path.IsAbs(p) && path.Clean(p) == p && !hasControl(p)
}

// hasControl reports whether a text has a control character.
func hasControl(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f })
}
