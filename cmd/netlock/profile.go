package main

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/cobra"

	"github.com/ftplockd/ftplockd/locksmith"
)

// profile is one table of the profiles' file: a lock, where it is and who asks for it. docs/netlock.md explains the keys.
type profile struct {
	Address string   `toml:"address"`
	User    string   `toml:"user"` // "": anonymous
	Lock    string   `toml:"lock"` // absolute, or relative to Dir
	Dir     string   `toml:"dir"`  // changed to after login
	TLS     tlsMode  `toml:"tls"`
	CA      string   `toml:"ca"`      // a file with certificates; relative to the profiles' file
	Timeout duration `toml:"timeout"` // of each command; 0: 30 s
	Wait    duration `toml:"wait"`    // for the lock; 0: for ever
	Poll    duration `toml:"poll"`
	Renew   bool     `toml:"renew"`

	Password        string `toml:"password"` // one of these four, or none
	PasswordFile    string `toml:"password_file"`
	PasswordEnv     string `toml:"password_env"`
	PasswordCommand string `toml:"password_command"`

	SharedUser            string `toml:"shared_user"` // who asks with --shared; "": User does
	SharedPassword        string `toml:"shared_password"`
	SharedPasswordFile    string `toml:"shared_password_file"`
	SharedPasswordEnv     string `toml:"shared_password_env"`
	SharedPasswordCommand string `toml:"shared_password_command"`
}

// secret is where a password comes from: one of these, or none.
type secret struct{ password, file, env, command string }

func (p *profile) secret() secret {
	return secret{p.Password, p.PasswordFile, p.PasswordEnv, p.PasswordCommand}
}

func (p *profile) sharedSecret() secret {
	return secret{p.SharedPassword, p.SharedPasswordFile, p.SharedPasswordEnv, p.SharedPasswordCommand}
}

// several are the keys of the passwords that are given, if there are several.
func (s secret) several(prefix string) string {
	var given []string
	for i, value := range []string{s.password, s.file, s.env, s.command} {
		if value != "" {
			given = append(given, prefix+[]string{"password", "password_file", "password_env", "password_command"}[i])
		}
	}
	if len(given) < 2 {
		return ""
	}
	return strings.Join(given, " and ")
}

// tlsMode is a locksmith.TLSMode as profiles write it.
type tlsMode locksmith.TLSMode

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *tlsMode) UnmarshalText(text []byte) error {
	mode, ok := map[string]locksmith.TLSMode{
		"off": locksmith.TLSOff, "explicit": locksmith.TLSExplicit, "implicit": locksmith.TLSImplicit,
	}[string(text)]
	if !ok {
		return errors.New(`must be "off", "explicit" or "implicit"`)
	}
	*m = tlsMode(mode)
	return nil
}

// duration is written with a unit (90s, 1m30s) or as a number of seconds. It is a flag's value, too.
type duration time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *duration) UnmarshalText(text []byte) error { return d.Set(string(text)) }

// Set implements pflag.Value.
func (d *duration) Set(text string) error {
	parsed, err := time.ParseDuration(text)
	if seconds, ferr := strconv.ParseFloat(text, 64); ferr == nil && seconds >= 0 && seconds < 1e9 {
		parsed, err = time.Duration(seconds*float64(time.Second)), nil
	}
	if err != nil || parsed < 0 {
		return errors.New(`must be a duration such as "30s", or a number of seconds`)
	}
	*d = duration(parsed)
	return nil
}

// String implements pflag.Value.
func (d *duration) String() string { return time.Duration(*d).String() }

// Type implements pflag.Value.
func (d *duration) Type() string { return "duration" }

// profiles is the profiles' file.
type profiles struct {
	file string
	all  map[string]*profile
}

func (p *profiles) names() []string { return slices.Sorted(maps.Keys(p.all)) }

// mistakes are all things that are wrong with a file: a line for each, which begins with file and, if that is known, line.
type mistakes []string

// Error is the first mistake, and how many more there are.
func (m mistakes) Error() string {
	if n := len(m) - 1; n > 0 {
		return fmt.Sprintf("%s (and %d more: see \"netlock profiles\")", m[0], n)
	}
	return m[0]
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

// loadProfiles reads the file.
func (s *settings) loadProfiles() (*profiles, error) {
	file, err := s.profilesFile()
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fail(exitProfile, "there is no file %s with profiles; make one (see docs/netlock.md) or name the lock by a URL: ftp://user@host/phone_lock", file)
	}
	if err != nil {
		return nil, fail(exitProfile, "profiles: %w", err)
	}
	p, err := parseProfiles(file, data)
	if err != nil {
		return nil, &statusError{exitProfile, err}
	}
	return p, p.checkMode()
}

// checkMode refuses a file with passwords that others than its owner can read. Windows keeps no modes.
func (p *profiles) checkMode() error {
	var passwords bool
	for _, one := range p.all {
		passwords = passwords || one.Password != "" || one.SharedPassword != ""
	}
	info, err := os.Stat(p.file)
	if err != nil {
		return fail(exitProfile, "profiles: %w", err)
	}
	if mode := info.Mode().Perm(); passwords && mode&0o077 != 0 && runtime.GOOS != "windows" {
		return fail(exitProfile, "%s has passwords in it and mode %04o, so that others can read them: chmod 600 it, or use password_file or password_command", p.file, mode)
	}
	return nil
}

// byteOrderMark is what editors on Windows begin a file with that is UTF-8.
const byteOrderMark = "\ufeff"

// parseProfiles is loadProfiles for what has been read. An error is a mistakes.
func parseProfiles(file string, data []byte) (*profiles, error) {
	p := &profiles{file: file}
	var wrong mistakes
	note := func(e *toml.DecodeError, text string) {
		line, _ := e.Position()
		key := strings.Join(e.Key(), ".")
		if key != "" {
			key += ": "
		}
		wrong = append(wrong, fmt.Sprintf("%s:%d: %s%s", file, line, key, strings.TrimPrefix(text, "toml: ")))
	}
	err := toml.NewDecoder(bytes.NewReader(bytes.TrimPrefix(data, []byte(byteOrderMark)))).DisallowUnknownFields().Decode(&p.all)
	var unknown *toml.StrictMissingError
	var decode *toml.DecodeError
	switch {
	case errors.As(err, &unknown):
		for _, e := range unknown.Errors {
			note(&e, "unknown key")
		}
	case errors.As(err, &decode):
		note(decode, decode.Error())
		return nil, wrong // what follows was not read
	case err != nil:
		return nil, append(wrong, file+": "+err.Error())
	}
	for _, name := range p.names() {
		for _, text := range p.all[name].mistakes(name) {
			wrong = append(wrong, file+": "+name+text)
		}
	}
	if len(wrong) > 0 {
		return nil, wrong
	}
	return p, nil
}

// mistakes are what is wrong with the profile as a whole.
func (p *profile) mistakes(name string) (wrong []string) {
	if slices.Contains(commandNames(), name) || strings.Contains(name, "://") || strings.HasPrefix(name, "-") {
		wrong = append(wrong, ": no profile can have this name: it means something else on the command line")
	}
	if p.Address == "" {
		wrong = append(wrong, `.address: say where the server is, such as address = "ftp.example.com"`)
	} else if _, err := (locksmith.Server{Address: p.Address}).HostPort(); err != nil {
		wrong = append(wrong, ".address: "+err.Error())
	}
	if p.Lock == "" {
		wrong = append(wrong, `.lock: say which lock, such as lock = "phone_lock"`)
	}
	for prefix, s := range map[string]secret{"": p.secret(), "shared_": p.sharedSecret()} {
		if several := s.several(prefix); several != "" {
			wrong = append(wrong, ": "+several+" are given: only one of them can be right")
		}
	}
	if p.User == "" && p.secret() != (secret{}) {
		wrong = append(wrong, ": a password without a user")
	}
	if p.SharedUser == "" && p.sharedSecret() != (secret{}) {
		wrong = append(wrong, ": a password without a shared_user")
	}
	return wrong
}

// commandNames are words that are no profiles: "netlock run" is a command.
func commandNames() []string {
	names := []string{"help", "completion"}
	for _, c := range newRootCommand().Commands() {
		names = append(names, c.Name())
	}
	return names
}

// newProfilesCommand returns the command that checks and lists the profiles.
func newProfilesCommand(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:   "profiles",
		Short: "check the file with the profiles and list them",
		Long: `Profiles says all that is wrong with the file, each thing on a line that begins with the file, and exits with
status 78; or it lists the profiles. No server is asked.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			all, err := s.loadProfiles()
			var wrong mistakes
			if errors.As(err, &wrong) {
				fmt.Fprintln(os.Stderr, strings.Join(wrong, "\n"))
				return silent(exitProfile)
			}
			if err != nil {
				return err
			}
			t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
			fmt.Fprintln(t, "PROFILE\tSERVER\tUSER\tLOCK")
			for _, name := range all.names() {
				p := all.all[name]
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", oneLine(name), p.Address, cmp.Or(p.User, "anonymous"), p.Lock)
			}
			return t.Flush()
		},
	}
}

// target makes what locksmith is asked for, but for the password. dir is where relative file names begin.
func (p *profile) target(name, dir string, shared bool) (*target, error) {
	s := locksmith.Server{
		Address: p.Address, User: p.User, TLS: locksmith.TLSMode(p.TLS), Timeout: time.Duration(p.Timeout), Dir: p.Dir,
		Poll: time.Duration(p.Poll),
	}
	t := &target{name: name, secret: p.secret(), dir: dir, wait: time.Duration(p.Wait)}
	if shared && p.SharedUser != "" {
		s.User, t.secret = p.SharedUser, p.sharedSecret()
	}
	if p.CA != "" {
		config, err := trust(inDir(dir, p.CA))
		if err != nil {
			return nil, fail(exitProfile, "%s: ca: %w", name, err)
		}
		s.Config = config
	}
	t.connect, t.path = s, p.Lock
	t.options = locksmith.Options{Renew: p.Renew, Shared: shared}
	return t, nil
}

// trust is a TLS configuration that trusts the certificates of a file instead of the system's.
func trust(file string) (*tls.Config, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%s has no certificate in PEM form", file)
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}

// inDir is where a file name of the profiles' file leads.
func inDir(dir, file string) string {
	if filepath.IsAbs(file) {
		return file
	}
	return filepath.Join(dir, file)
}

// user names the account for people.
func (t *target) user() string { return cmp.Or(t.connect.User, "anonymous") }
