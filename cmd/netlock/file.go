package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// profiles is the profiles' file.
type profiles struct {
	file  string
	all   map[string]*profile
	names []string // sorted
}

// byteOrderMark is what editors on Windows begin a file with that is UTF-8.
const byteOrderMark = "\ufeff"

// maxFile bounds the profiles' file, in bytes.
const maxFile = 1 << 20

// mistake is one thing that is wrong with the profiles' file.
type mistake struct {
	line int    // counted from 1; 0 when it belongs to none
	key  string // such as phonestuff.tls
	text string // what would be right
}

// mistakes are all things that are wrong with a file, in the order of its lines.
type mistakes struct {
	file string
	list []mistake
}

// Error has a line for each, which begins with file and line, so that editors find them.
func (m *mistakes) Error() string {
	lines := make([]string, len(m.list))
	for i, one := range m.list {
		lines[i] = m.file + ":"
		if one.line > 0 {
			lines[i] += fmt.Sprint(one.line, ":")
		}
		if one.key != "" {
			lines[i] += " " + one.key + ":"
		}
		lines[i] += " " + one.text
	}
	return strings.Join(lines, "\n")
}

// first is the first mistake, and how many more there are.
func (m *mistakes) first() error {
	line, _, _ := strings.Cut(m.Error(), "\n")
	if n := len(m.list) - 1; n > 0 {
		return fmt.Errorf("%s (and %d more: see \"netlock profiles\")", line, n)
	}
	return errors.New(line)
}

// brief is an error of the profiles on one line.
func brief(err error) error {
	var m *mistakes
	if errors.As(err, &m) {
		return &statusError{exitProfile, m.first()}
	}
	return err
}

// profilesFile is where the profiles are: what the flag says, else NETLOCK_CONFIG, else the user's own file.
func (s *settings) profilesFile() (string, error) {
	if file := cmp.Or(s.config, os.Getenv("NETLOCK_CONFIG")); file != "" {
		return file, nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fail(exitProfile, "where are the profiles? %w; say --config FILE", err)
	}
	return filepath.Join(dir, "netlock", "netlock.toml"), nil
}

// loadProfiles reads the file. The error is a *mistakes if it could be read and is wrong.
func (s *settings) loadProfiles() (*profiles, error) {
	file, err := s.profilesFile()
	if err != nil {
		return nil, err
	}
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fail(exitProfile, "there is no file %s with profiles; make one (see docs/netlock.md) or name the lock by a URL: ftp://user@host/phone_lock", file)
	}
	if err != nil {
		return nil, fail(exitProfile, "profiles: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fail(exitProfile, "profiles: %w", err)
	}
	if len(data) > maxFile {
		return nil, fail(exitProfile, "profiles: %s is too large", file)
	}
	p, err := parseProfiles(file, bytes.TrimPrefix(data, []byte(byteOrderMark)))
	if err != nil {
		return nil, &statusError{exitProfile, err}
	}
	return p, p.checkMode(f)
}

// checkMode refuses a file with passwords that others than its owner can read. It asks the file that was read. Windows
// keeps no modes.
func (p *profiles) checkMode(f *os.File) error {
	if runtime.GOOS == "windows" || !p.havePasswords() {
		return nil
	}
	info, err := f.Stat()
	if err != nil {
		return fail(exitProfile, "profiles: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fail(exitProfile, "%s has passwords in it and mode %04o, so that others can read them: chmod 600 it, or use password_file or password_command", p.file, mode)
	}
	return nil
}

func (p *profiles) havePasswords() bool {
	for _, one := range p.all {
		if one.secret.password != "" || one.sharedSecret.password != "" {
			return true
		}
	}
	return false
}

// parseProfiles is loadProfiles for what has been read.
func parseProfiles(file string, data []byte) (*profiles, error) {
	var tree map[string]any
	if err := toml.Unmarshal(data, &tree); err != nil {
		return nil, &mistakes{file, []mistake{syntax(err)}}
	}
	r := reader{lines: keyLines(data)}
	p := &profiles{file: file, all: make(map[string]*profile)}
	for name, value := range tree {
		p.names = append(p.names, name)
		p.all[name] = r.profile(name, value)
	}
	slices.Sort(p.names)
	if len(r.wrong) > 0 {
		slices.SortFunc(r.wrong, func(a, b mistake) int { return cmp.Or(a.line-b.line, strings.Compare(a.key, b.key)) })
		return nil, &mistakes{file, r.wrong}
	}
	return p, nil
}

// syntax is what the library has against a file.
func syntax(err error) mistake {
	m := mistake{text: strings.TrimPrefix(err.Error(), "toml: ")}
	var at *toml.DecodeError
	if errors.As(err, &at) {
		m.line, _ = at.Position()
		m.key = strings.Join(at.Key(), ".")
	}
	return m
}

// reader turns tables into profiles, and collects what is wrong with them.
type reader struct {
	lines map[string]int // of each key
	wrong []mistake
}

func (r *reader) fail(profile, key, text string) {
	line, ok := r.lines[profile+"\x00"+key]
	if !ok {
		line = r.lines[profile] // a key that is missing belongs to the table
	}
	if key != "" {
		profile += "." + key
	}
	r.wrong = append(r.wrong, mistake{line, profile, text})
}

func (r *reader) profile(name string, value any) *profile {
	p := new(profile)
	table, ok := value.(map[string]any)
	if !ok {
		r.fail(name, "", "a key outside of a profile: begin one with [name]")
		return p
	}
	if slices.Contains(commandNames(), name) || strings.Contains(name, "://") || strings.HasPrefix(name, "-") {
		r.fail(name, "", "no profile can have this name: it means something else on the command line")
	}
	fields, failed := p.fields(), make(map[string]bool)
	for key, value := range table {
		field, ok := fields[key]
		if !ok {
			r.fail(name, key, "unknown key"+didYouMean(key, keysOf(fields)))
			continue
		}
		if err := set(field, value); err != nil {
			r.fail(name, key, err.Error())
			failed[key] = true
		}
	}
	for key, text := range p.mistakes() {
		if !failed[key] {
			r.fail(name, key, text)
		}
	}
	return p
}

// commandNames are words that are no profiles: "netlock run" is a command.
func commandNames() []string {
	var names []string
	for _, c := range newRootCommand().Commands() {
		names = append(names, c.Name())
	}
	return append(names, "help", "completion")
}

func keysOf[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	return keys
}

// keyLines tells the lines of the profiles, by name, and of their keys, by name and key with a zero byte between. The library tells no
// lines of what it liked.
func keyLines(data []byte) map[string]int {
	lines := make(map[string]int)
	var parser unstable.Parser
	parser.Reset(data)
	var table []string
	for parser.NextExpression() {
		e := parser.Expression()
		if e.Kind != unstable.Table && e.Kind != unstable.KeyValue {
			continue
		}
		names, line := keyOf(&parser, e)
		if e.Kind == unstable.Table {
			table = names
		} else {
			names = append(slices.Clone(table), names...)
		}
		note(lines, names, line)
	}
	return lines
}

// note takes down where a key stands, and the profile that it begins.
func note(lines map[string]int, names []string, line int) {
	if _, ok := lines[names[0]]; !ok {
		lines[names[0]] = line
	}
	if len(names) > 1 {
		lines[names[0]+"\x00"+names[1]] = line
	}
}

func keyOf(parser *unstable.Parser, e *unstable.Node) (names []string, line int) {
	for it := e.Key(); it.Next(); {
		if names == nil {
			line = parser.Shape(it.Node().Raw).Start.Line
		}
		names = append(names, string(it.Node().Data))
	}
	return names, line
}
