//go:build linux

// Package peers runs other FTP servers for tests and measurements: vsftpd, proftpd and pure-ftpd, from Debian's packages. Each has one account, which
// may change everything below /pub.
//
// [Get] installs nothing. It downloads missing packages and unpacks them into the user's cache directory, because the packages conflict with each
// other. [Find] uses installed servers only. The servers need root.
package peers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/crypto/bcrypt"
)

// Names returns the names of the servers.
func Names() []string { return []string{"vsftpd", "proftpd", "pure-ftpd"} }

// The account of all servers except vsftpd, whose anonymous account needs no PAM.
const account, password = "bench", "bench"

// FirstPort and LastPort are the limits of the passive ports of all peers, outside of the kernel's ephemeral range. The range is large because
// proftpd does not reuse a port within a minute.
const FirstPort, LastPort = 10000, 27999

// Peer is a server that is ready to start.
type Peer struct {
	Name  string
	start func(place, Certificate) (*Process, error)
}

// place has the directories and the port of one start.
type place struct {
	dir, root, address string
	port               int
}

// software is the origin of a server.
type software struct {
	program  string
	packages []string
	start    func(installation, place, Certificate) (*Process, error)
}

func known(name string) (software, error) {
	switch name {
	case "vsftpd":
		return software{"/usr/sbin/vsftpd", []string{"vsftpd", "libwrap0"}, installation.vsftpd}, nil
	case "proftpd":
		return software{"/usr/sbin/proftpd", []string{"proftpd-core", "proftpd-mod-crypto",
			"libhashkit2", "libhiredis0.14", "libmemcached11", "libmemcachedutil2", "libpcre2-posix3"}, installation.proftpd}, nil
	case "pure-ftpd":
		return software{"/usr/sbin/pure-ftpd", []string{"pure-ftpd", "pure-ftpd-common", "libsodium23"}, installation.pureftpd}, nil
	}
	return software{}, fmt.Errorf("no server %q is known", name)
}

// Find returns a server that is installed or unpacked, or an error with the reason why there is none.
func Find(name string) (*Peer, error) {
	return have(name, find)
}

// Get returns a server, which it downloads and unpacks if necessary.
func Get(ctx context.Context, name string) (*Peer, error) {
	return have(name, func(program string, packages []string) (installation, error) { return get(ctx, program, packages) })
}

func have(name string, how func(string, []string) (installation, error)) (*Peer, error) {
	s, err := known(name)
	if err != nil {
		return nil, err
	}
	i, err := how(s.program, s.packages)
	if err != nil {
		return nil, err
	}
	return &Peer{Name: name, start: func(at place, c Certificate) (*Process, error) { return s.start(i, at, c) }}, nil
}

// Start starts the server with a new tree below dir. All users need access to dir, because sessions run as nobody. With a certificate the server offers
// TLS.
func (p *Peer) Start(dir string, c Certificate) (*Process, error) {
	at, err := newPlace(dir, p.Name)
	if err != nil {
		return nil, err
	}
	process, err := p.start(at, c)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Name, err)
	}
	return process, nil
}

func newPlace(parent, name string) (at place, err error) {
	if at.dir, at.root, err = Work(parent, name); err != nil {
		return at, err
	}
	at.address, at.port, err = freePort()
	return at, err
}

// process is a program of an installation that is not started.
func (i installation) process(at place, user, program string, args ...string) *Process {
	p := &Process{Cmd: exec.Command(i.path(program), args...), Address: at.address, User: user, Password: password, Root: at.root}
	p.Cmd.Env = i.libraries
	p.Cmd.Stdin = os.Stderr // where vsftpd says what is wrong with its configuration
	return p
}

// vsftpd serves its anonymous account. The log, the sandbox, the second process of each session and the namespaces are off, because they are slow.
// sendfile is on, as by default. 3DES, its default under TLS, is off. ftp_username needs a home that exists, though another directory is served.
func (i installation) vsftpd(at place, c Certificate) (*Process, error) {
	empty, file := filepath.Join(at.dir, "empty"), filepath.Join(at.dir, "vsftpd.conf")
	config := fmt.Sprintf(`listen=YES
listen_address=127.0.0.1
listen_port=%d
background=NO
one_process_model=%s
isolate=NO
isolate_network=NO
seccomp_sandbox=NO
xferlog_enable=NO
session_support=NO
max_clients=0
max_per_ip=0
anonymous_enable=YES
local_enable=NO
write_enable=YES
anon_root=%s
anon_umask=022
anon_max_rate=0
anon_mkdir_write_enable=YES
anon_other_write_enable=YES
anon_upload_enable=YES
anon_world_readable_only=NO
ascii_upload_enable=YES
ascii_download_enable=YES
connect_from_port_20=NO
pasv_min_port=%d
pasv_max_port=%d
ftp_username=bin
nopriv_user=nobody
secure_chroot_dir=%s
`, at.port, yes(!c.given()), at.root, FirstPort, LastPort, empty) // it has no TLS with one process
	if c.given() {
		config += fmt.Sprintf(`ssl_enable=YES
allow_anon_ssl=YES
force_anon_logins_ssl=NO
force_anon_data_ssl=NO
require_ssl_reuse=NO
ssl_ciphers=HIGH
rsa_cert_file=%s
rsa_private_key_file=%s
`, c.Certificate, c.Key)
	}
	if err := errors.Join(os.Mkdir(empty, 0o555), os.WriteFile(file, []byte(config), 0o600)); err != nil {
		return nil, err
	}
	return i.process(at, "anonymous", "/usr/sbin/vsftpd", file).LaunchAndDial()
}

func yes(b bool) string {
	if b {
		return "YES"
	}
	return "NO"
}

// cheapHash returns a hash of the password that is quick to compare.
func cheapHash() (string, error) {
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	return string(hash), err
}

// proftpd has its account in a file. mod_delay (slow logins), the scoreboard and all logs are off.
func (i installation) proftpd(at place, c Certificate) (*Process, error) {
	hash, err := cheapHash()
	if err != nil {
		return nil, err
	}
	users, file := filepath.Join(at.dir, "users"), filepath.Join(at.dir, "proftpd.conf")
	config := fmt.Sprintf(`ModulePath %s
ServerName bench
ServerType standalone
DefaultAddress 127.0.0.1
Port %d
UseIPv6 off
UseReverseDNS off
User nobody
Group nogroup
MaxInstances none
PidFile %s
ScoreboardFile none
DelayEngine off
SystemLog none
TransferLog none
WtmpLog off
RequireValidShell off
AuthOrder mod_auth_file.c
AuthUserFile %s
DefaultRoot %s
AllowOverwrite on
TimeoutIdle 600
PassivePorts %d %d
UseSendfile on
`, i.path("/usr/lib/proftpd"), at.port, filepath.Join(at.dir, "pid"), users, at.root, FirstPort, LastPort)
	if c.given() {
		config += fmt.Sprintf(`LoadModule mod_tls.c
TLSEngine on
TLSRequired off
TLSECCertificateFile %s
TLSECCertificateKeyFile %s
TLSOptions NoSessionReuseRequired
TLSVerifyClient off
`, c.Certificate, c.Key)
	}
	line := fmt.Sprintf("%s:%s:65534:65534::%s:/bin/false\n", account, hash, at.root)
	if err := errors.Join(os.WriteFile(users, []byte(line), 0o600), os.WriteFile(file, []byte(config), 0o600)); err != nil {
		return nil, err
	}
	return i.process(at, account, "/usr/sbin/proftpd", "--nodaemon", "--quiet", "--config", file).LaunchAndDial()
}

// pureftpd has its account in a PureDB. It looks up no names (-H) and logs nothing (-f none).
func (i installation) pureftpd(at place, c Certificate) (*Process, error) {
	hash, err := cheapHash()
	if err != nil {
		return nil, err
	}
	users, database := filepath.Join(at.dir, "users"), filepath.Join(at.dir, "users.pdb")
	line := fmt.Sprintf("%s:%s:65534:65534::%s/./::::::::::::\n", account, hash, at.root)
	if err := os.WriteFile(users, []byte(line), 0o600); err != nil {
		return nil, err
	}
	if err := in(context.Background(), at.dir, i.path("/usr/bin/pure-pw"), "mkdb", database, "-f", users); err != nil {
		return nil, err
	}
	args := []string{
		"-4", "-S", fmt.Sprintf("127.0.0.1,%d", at.port), "-H", "-E", "-f", "none", "-l", "puredb:" + database,
		"-c", "20000", "-I", "60", "-p", fmt.Sprintf("%d:%d", FirstPort, LastPort), "-g", filepath.Join(at.dir, "pid"),
	}
	if c.given() {
		args = append(args, "-Y", "1", "-2", c.Both)
	}
	return i.process(at, account, "/usr/sbin/pure-ftpd", args...).LaunchAndDial()
}
