//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// settings are how a server ran: its command line and its configuration, as it was started. They are for people, without
// the names of temporary directories and ports.
type settings struct {
	Server  string   `json:"server"`
	Version string   `json:"version"`
	Plain   []string `json:"plain"` // lines
	TLS     []string `json:"tls"`   // lines that are otherwise under TLS
}

// describe takes down the settings of a server that runs, when it is seen for the first time with or without TLS. The modes
// of ftplockd are one server.
func (r *report) describe(ctx context.Context, name string, p *process, dir string) {
	name, _, mode := strings.Cut(name, ", ")
	i := slices.IndexFunc(r.Servers, func(s settings) bool { return s.Server == name })
	if i < 0 {
		i = len(r.Servers)
		r.Servers = append(r.Servers, settings{Server: name, Version: version(p.Cmd)})
	}
	s, lines := &r.Servers[i], settingsOf(p, dir)
	switch {
	case p.tls:
		other := slices.DeleteFunc(lines, func(line string) bool { return slices.Contains(s.Plain, line) })
		if cipher := negotiated(ctx, p); cipher != "" {
			other = append(other, "# agreed on with these clients: "+cipher)
		}
		if s.TLS == nil || len(other) < len(s.TLS) { // those of the mode that is nearest to the plain one
			s.TLS = other
		}
	case s.Plain == nil || !mode: // rather those of the server as it is by default
		s.Plain = lines
	}
}

// negotiated says what TLS a server and these clients agree on: it makes a difference to the rates. "" without any.
func negotiated(ctx context.Context, p *process) string {
	c, err := connect(ctx, p)
	if err != nil {
		return "" // the rows say so, too
	}
	defer c.conn.Close()
	conn, ok := c.conn.(*tls.Conn)
	if !ok {
		return ""
	}
	state := conn.ConnectionState()
	return tls.VersionName(state.Version) + ", " + tls.CipherSuiteName(state.CipherSuite)
}

// settingsOf returns the command line and the lines of every configuration file that it names.
func settingsOf(p *process, dir string) []string {
	lines := []string{"$ " + strings.Join(slices.Concat([]string{filepath.Base(p.Cmd.Path)}, p.Cmd.Args[1:]), " ")}
	for _, arg := range p.Cmd.Args[1:] {
		if !strings.HasPrefix(arg, dir) || !slices.Contains([]string{".conf", ".toml"}, filepath.Ext(arg)) {
			continue
		}
		if content, err := os.ReadFile(arg); err == nil && utf8.Valid(content) {
			lines = append(lines, strings.Split(strings.TrimSpace(string(content)), "\n")...)
		}
	}
	_, port, _ := strings.Cut(p.Address, ":")
	for i, line := range lines {
		lines[i] = impersonal(line, dir, port)
	}
	return lines
}

// impersonal replaces what is another one each time: the servers' own directories, where programs were unpacked, the port.
func impersonal(line, dir, port string) string {
	line = regexp.MustCompile(regexp.QuoteMeta(dir)+`(/\w[\w-]*-\d+)?`).ReplaceAllString(line, "DIR")
	line = regexp.MustCompile(`/\S*/ftplockd-bench-\d+(/\w[\w-]*-\d+)?`).ReplaceAllString(line, "DIR")
	line = regexp.MustCompile(`\S*/ftplockd-peers/[^/\s]*`).ReplaceAllString(line, "")
	if port == "" {
		return line
	}
	return regexp.MustCompile(`\b`+port+`\b`).ReplaceAllString(line, "PORT")
}

// versionNumber is how versions of servers look.
var versionNumber = regexp.MustCompile(`\d+\.\d+\.\d+\w*`)

// version asks a program for its version; "" if it does not say.
func version(cmd *exec.Cmd) string {
	switch filepath.Base(cmd.Path) {
	case "vsftpd", "proftpd":
		return ask(cmd, "-v")
	case "pure-ftpd":
		return ask(cmd, "--help")
	case "bare":
		info, err := buildinfo.ReadFile(cmd.Path)
		if err != nil {
			return ""
		}
		for _, d := range info.Deps {
			if strings.HasSuffix(d.Path, "/ftpserverlib") {
				return strings.TrimPrefix(d.Version, "v")
			}
		}
	}
	return ""
}

// ask runs a program that says its version and ends. vsftpd says it to its standard input.
func ask(cmd *exec.Cmd, arg string) string {
	file, err := os.CreateTemp("", "ftplockd-bench-version-")
	if err != nil {
		return ""
	}
	defer func() { file.Close(); os.Remove(file.Name()) }()
	asking := exec.Command(cmd.Path, arg)
	asking.Env, asking.Stdin, asking.Stdout, asking.Stderr = cmd.Env, file, file, file
	_ = asking.Run() // some end with an error status
	said, err := os.ReadFile(file.Name())
	if err != nil {
		return ""
	}
	return string(versionNumber.Find(said))
}

// String is a heading and a block of the lines.
func (s settings) String() string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "**%s**\n\n```\n%s\n```\n", strings.TrimSpace(s.Server+" "+s.Version), strings.Join(s.Plain, "\n"))
	if len(s.TLS) > 0 {
		fmt.Fprintf(&b, "\nUnder TLS also, or instead:\n\n```\n%s\n```\n", strings.Join(s.TLS, "\n"))
	}
	return b.String()
}
