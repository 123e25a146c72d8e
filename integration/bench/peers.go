//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/crypto/bcrypt"
)

// All peers take passive ports from here, outside the kernel's ephemeral range. Many: proftpd does not take one that was used in the last minute.
const firstPort, lastPort = 10000, 27999

// vsftpd serves its anonymous account. What makes it slow is off: the log, the sandbox, the second
// process of each session and their namespaces. sendfile is on, as it is by default. 3DES, its default under TLS, is not used. ftp_username needs a home
// that exists, though another directory is served.
func (c *contest) vsftpd(ctx context.Context) (server, error) {
	s := server{name: reference, able: canFTP}
	const program = "/usr/sbin/vsftpd"
	where, err := find(ctx, program, "vsftpd")
	s.start = func(_ context.Context, tls bool) (*process, error) {
		dir, root, err := c.work("vsftpd")
		if err != nil {
			return nil, err
		}
		address, port, err := freePort()
		if err != nil {
			return nil, err
		}
		empty, file := filepath.Join(dir, "empty"), filepath.Join(dir, "vsftpd.conf")
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
`, port, yes(!tls), root, firstPort, lastPort, empty) // it has no TLS with one process
		if tls {
			config += fmt.Sprintf(`ssl_enable=YES
allow_anon_ssl=YES
force_anon_logins_ssl=NO
force_anon_data_ssl=NO
require_ssl_reuse=NO
ssl_ciphers=HIGH
rsa_cert_file=%s
rsa_private_key_file=%s
`, c.cert.certificate, c.cert.key)
		}
		if err := errors.Join(os.Mkdir(empty, 0o555), os.WriteFile(file, []byte(config), 0o600)); err != nil {
			return nil, err
		}
		return where.start(&process{address: address, user: "anonymous", locks: "/pub", files: "/pub", tls: tls}, program, file)
	}
	return s, err
}

func yes(b bool) string {
	if b {
		return "YES"
	}
	return "NO"
}

// start starts a peer's program.
func (i installation) start(p *process, program string, args ...string) (*process, error) {
	p.cmd = exec.Command(i.path(program), args...)
	p.cmd.Env = i.libraries
	p.cmd.Stdin = os.Stderr // where vsftpd says what is wrong with its configuration
	return p, p.launchAndDial()
}

// cheapHash is of the password, quick to compare: the others pay little for their logins, too.
func cheapHash() (string, error) {
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	return string(hash), err
}

// proftpd has its account in a file. mod_delay, which slows logins down on purpose, the scoreboard and all logs are off.
func (c *contest) proftpd(ctx context.Context) (server, error) {
	s := server{name: "proftpd", able: canFTP}
	const program = "/usr/sbin/proftpd"
	where, err := find(ctx, program, "proftpd-core", "proftpd-mod-crypto",
		"libhashkit2", "libhiredis0.14", "libmemcached11", "libmemcachedutil2", "libpcre2-posix3")
	s.start = func(_ context.Context, tls bool) (*process, error) {
		dir, root, err := c.work("proftpd")
		if err != nil {
			return nil, err
		}
		address, port, err := freePort()
		if err != nil {
			return nil, err
		}
		hash, err := cheapHash()
		if err != nil {
			return nil, err
		}
		users, file := filepath.Join(dir, "users"), filepath.Join(dir, "proftpd.conf")
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
`, where.path("/usr/lib/proftpd"), port, filepath.Join(dir, "pid"), users, root, firstPort, lastPort)
		if tls {
			config += fmt.Sprintf(`LoadModule mod_tls.c
TLSEngine on
TLSRequired off
TLSECCertificateFile %s
TLSECCertificateKeyFile %s
TLSOptions NoSessionReuseRequired
TLSVerifyClient off
`, c.cert.certificate, c.cert.key)
		}
		line := fmt.Sprintf("%s:%s:65534:65534::%s:/bin/false\n", account, hash, root)
		if err := errors.Join(os.WriteFile(users, []byte(line), 0o600), os.WriteFile(file, []byte(config), 0o600)); err != nil {
			return nil, err
		}
		return where.start(&process{address: address, user: account, locks: "/pub", files: "/pub", tls: tls}, program, "--nodaemon", "--quiet", "--config", file)
	}
	return s, err
}

// pureftpd has its account in a PureDB. No names are looked up (-H), nothing is logged (-f none).
func (c *contest) pureftpd(ctx context.Context) (server, error) {
	s := server{name: "pure-ftpd", able: canFTP}
	const program = "/usr/sbin/pure-ftpd"
	where, err := find(ctx, program, "pure-ftpd", "pure-ftpd-common", "libsodium23")
	s.start = func(ctx context.Context, tls bool) (*process, error) {
		dir, root, err := c.work("pure-ftpd")
		if err != nil {
			return nil, err
		}
		address, port, err := freePort()
		if err != nil {
			return nil, err
		}
		hash, err := cheapHash()
		if err != nil {
			return nil, err
		}
		users, database := filepath.Join(dir, "users"), filepath.Join(dir, "users.pdb")
		line := fmt.Sprintf("%s:%s:65534:65534::%s/./::::::::::::\n", account, hash, root)
		if err := os.WriteFile(users, []byte(line), 0o600); err != nil {
			return nil, err
		}
		if err := in(ctx, dir, where.path("/usr/bin/pure-pw"), "mkdb", database, "-f", users); err != nil {
			return nil, err
		}
		args := []string{
			"-4", "-S", fmt.Sprintf("127.0.0.1,%d", port), "-H", "-E", "-f", "none", "-l", "puredb:" + database,
			"-c", "20000", "-C", "20000", "-I", "60", "-p", fmt.Sprintf("%d:%d", firstPort, lastPort), "-g", filepath.Join(dir, "pid"),
		}
		if tls {
			args = append(args, "-Y", "1", "-2", c.cert.both)
		}
		return where.start(&process{address: address, user: account, locks: "/pub", files: "/pub", tls: tls}, program, args...)
	}
	return s, err
}
