//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// findVsftpd returns the program: the one that is installed, or the one of Debian's package, unpacked into dir.
func findVsftpd(ctx context.Context, dir string) (string, error) {
	if os.Getuid() != 0 {
		return "", errors.New("it needs root")
	}
	for _, p := range []string{"/usr/sbin/vsftpd", "/usr/local/sbin/vsftpd"} {
		if _, err := os.Stat(p); err == nil {
			return p, nil
		}
	}
	unpack := exec.CommandContext(ctx, "sh", "-c", "apt-get -q download vsftpd >/dev/null 2>&1 && dpkg -x vsftpd_*.deb .")
	unpack.Dir = filepath.Join(dir, "package")
	if err := os.Mkdir(unpack.Dir, 0o755); err != nil {
		return "", err
	}
	if err := unpack.Run(); err != nil {
		return "", errors.New("it is not installed, and Debian's package could not be had")
	}
	return filepath.Join(unpack.Dir, "usr/sbin/vsftpd"), nil
}

// vsftpdServer is vsftpd with an anonymous account that may make directories, and nothing that slows it down.
func vsftpdServer(dir, program string) server {
	return server{name: "vsftpd", base: "/pub", start: func(context.Context) (*process, error) {
		work, err := os.MkdirTemp(dir, "vsftpd-")
		if err != nil {
			return nil, err
		}
		root, empty, file := filepath.Join(work, "root"), filepath.Join(work, "empty"), filepath.Join(work, "vsftpd.conf")
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		config := fmt.Sprintf(`listen=YES
listen_address=127.0.0.1
listen_port=%d
background=NO
anonymous_enable=YES
local_enable=NO
write_enable=YES
anon_root=%s
anon_mkdir_write_enable=YES
anon_other_write_enable=YES
anon_upload_enable=YES
no_anon_password=NO
reverse_lookup_enable=NO
xferlog_enable=NO
use_localtime=NO
connect_from_port_20=NO
seccomp_sandbox=NO
max_clients=0
max_per_ip=0
ftp_username=nobody
nopriv_user=nobody
secure_chroot_dir=%s
`, port, root, empty)
		err = errors.Join(
			openDirectories(work, dir), os.Mkdir(empty, 0o555), os.Mkdir(root, 0o555),
			os.Mkdir(filepath.Join(root, "pub"), 0o777), os.Chmod(filepath.Join(root, "pub"), 0o777),
			os.WriteFile(file, []byte(config), 0o600))
		if err != nil {
			return nil, err
		}
		p := &process{address: fmt.Sprintf("127.0.0.1:%d", port), cmd: exec.Command(program, file)}
		p.cmd.Stderr = os.Stderr
		if err := run(p.cmd); err != nil {
			return nil, err
		}
		return p, p.awaitListening()
	}}
}

// openDirectories lets the account nobody pass.
func openDirectories(dirs ...string) error {
	var errs []error
	for _, d := range dirs {
		errs = append(errs, os.Chmod(d, 0o755))
	}
	return errors.Join(errs...)
}

// freePort is one that nobody listens on; vsftpd cannot be told to take any.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// awaitListening returns when the server takes connections; it says nothing itself.
func (p *process) awaitListening() error {
	var err error
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		var conn net.Conn
		if conn, err = net.Dial("tcp", p.address); err == nil {
			return conn.Close()
		}
	}
	return errors.Join(err, p.stop())
}
