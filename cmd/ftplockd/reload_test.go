package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/config"
	"github.com/ftplockd/ftplockd/integration/harness"
)

// writePair writes a self-signed certificate and its key to two files, and returns the lines of [tls] that name them.
func writePair(t *testing.T, dir, name string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{".cert": {Type: "CERTIFICATE", Bytes: cert}, ".key": {Type: "PRIVATE KEY", Bytes: der}} {
		if err := os.WriteFile(filepath.Join(dir, name+file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return pairLines(filepath.Join(dir, name+".cert"), filepath.Join(dir, name+".key"))
}

func pairLines(cert, key string) string {
	return "[tls]\nmode = 'optional'\ncertificate = '" + cert + "'\nkey = '" + key + "'\n"
}

// certificateName returns the name in the certificate that the server shows after AUTH TLS.
func (r *running) certificateName() string {
	r.t.Helper()
	conn, err := net.Dial("tcp", r.address)
	if err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	var buffer [512]byte
	conn.Read(buffer[:])
	conn.Write([]byte("AUTH TLS\r\n"))
	conn.Read(buffer[:])
	secure := tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	if err := secure.Handshake(); err != nil {
		r.t.Fatal(err)
	}
	return secure.ConnectionState().PeerCertificates[0].DNSNames[0]
}

// In TestAReloadIsAllOrNothing a reload fails at each step, while everything else in the file has changed, too.
func TestAReloadIsAllOrNothing(t *testing.T) {
	hash, err := config.HashPassword(harness.Password)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	first, second := writePair(t, dir, "first"), writePair(t, dir, "second")
	account := func(name string) string {
		return "[[account]]\nname = '" + name + "'\npassword = '" + hash + "'\n"
	}
	r := startServer(t, "[locks]\ndirectories = false\n"+first+account("ftp")+"[[lock]]\nmatch = '/locks/**'\nmax_age = '1h'\nmax_idle = '0'\n")
	if err := os.WriteFile(filepath.Join(r.dir, "files/taken"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	session := r.login()
	session.Want(257, "MKD /locks/a")
	changed := func(pair, accounts, rules string) string {
		return "[ftp]\nstatus_file = '/other'\n[locks]\ndirectories = false\n" + pair + accounts +
			"[[lock]]\nmatch = '/locks/**'\nmax_age = '2h'\nmax_idle = '0'\n[[lock]]\nmatch = '/new/deep/**'\n" + rules
	}
	for step, c := range map[string]struct{ file, says, password string }{
		"reading":     {changed(second, account("newcomer"), "max_agee = '1s'\n"), "max_agee", ""},
		"rules":       {changed(second, account("newcomer"), "protects = ['$7']\n"), "protects", ""},
		"accounts":    {changed(second, "", ""), "line end", "a\nb"},
		"certificate": {changed(pairLines(r.file, r.file), account("newcomer"), ""), "tls.certificate " + r.file, ""},
		"its key": {changed(pairLines(filepath.Join(dir, "second.cert"), filepath.Join(dir, "first.key")), account("newcomer"), ""),
			"does not match", ""},
		"prefixes": {changed(second, account("newcomer"), "[[lock]]\nmatch = '/taken/**'\n"), "/taken", ""},
	} {
		t.Run(step, func(t *testing.T) {
			if c.password != "" {
				t.Setenv("FTPLOCKD_PASSWORD", c.password)
			}
			r.configure(c.file)
			_, errs, status := runCommand(t.Context(), "reload", "--state", r.dir+"/state")
			if status != exitFailure || !strings.Contains(errs, c.says) {
				t.Errorf("status %d, %s", status, errs)
			}
			r.checkUnchanged(t, session)
		})
	}
	r.configure(changed(second, account("newcomer"), ""))
	r.expect("reloaded", "reload")
	if got := r.certificateName(); got != "second" {
		t.Error("the certificate after a reload that went well:", got)
	}
	if got := r.expect("/locks/a", "locks"); !strings.Contains(got, " 2h0m0s ") && !strings.Contains(got, " 1h59m") {
		t.Error("the age after a reload that went well:", got)
	}
	session.Want(257, "MKD /new/deep/b") // in the prefix of the new rule

	r.configure("[locks]\ndirectories = false\n" + account("ftp")) // without [tls]
	if out, errs, status := r.run("reload"); status != exitOK || !strings.Contains(errs, "tls.mode has changed, but needs a restart") {
		t.Errorf("status %d, %s%s", status, out, errs)
	}
	if got := r.certificateName(); got != "second" {
		t.Error("the certificate until the restart without TLS:", got)
	}
}

func (r *running) checkUnchanged(t *testing.T, session *harness.Session) {
	t.Helper()
	if got := r.certificateName(); got != "first" {
		t.Error("the certificate:", got)
	}
	if got, _, _ := runCommand(t.Context(), "locks", "--state", r.dir+"/state"); !strings.Contains(got, " 1h0m0s ") && !strings.Contains(got, " 59m") {
		t.Error("the age of a held lock:", got)
	}
	again := r.login()
	again.T = t
	again.Want(504, "SIZE /.locks.json", "generated on each read") // this path is still the status file
	again.Conn.Close()
	r.strangers++ // each has an address of its own: the server delays the second failure of an address
	stranger := &net.TCPAddr{IP: net.IPv4(127, 0, 1, r.strangers)}
	if s, err := harness.Login(stranger, r.address, "newcomer", 0); err == nil {
		s.Conn.Close()
		t.Error("the accounts: newcomer may log in")
	} else if !strings.Contains(err.Error(), "530") {
		t.Error("the accounts:", err)
	}
	if _, err := os.Stat(filepath.Join(r.dir, "files/new")); !os.IsNotExist(err) {
		t.Error("a prefix:", err)
	}
	session.Want(200, "NOOP")
}

func TestAReloadPrintsTheWarningsOfConfigCheck(t *testing.T) {
	r := startServer(t, "")
	r.configure("[[lock]]\nmatch = '/locks/**'\nwait = '101s'\n")
	_, want, _ := runCommand(t.Context(), "config", "check", r.file)
	if !strings.Contains(want, "lock[1].wait: warning: ") {
		t.Fatal(want)
	}
	if _, errs, status := r.run("reload"); status != exitOK || errs != want {
		t.Errorf("status %d\n%s", status, errs)
	}
	r.log.AwaitLine(t, "lock[1].wait: warning: ")
}

// TestTheServiceReloadFailsIfTheServerRefusesTheFile runs the command of systemctl reload.
func TestTheServiceReloadFailsIfTheServerRefusesTheFile(t *testing.T) {
	unit, err := os.ReadFile("../../packaging/ftplockd.service")
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(unit), "\nExecReload=")
	line, _, _ = strings.Cut(line, "\n")
	r := startServer(t, "")
	if err := os.WriteFile(filepath.Join(r.dir, "files/taken"), nil, 0o644); err != nil { // the configuration is correct, the tree is not
		t.Fatal(err)
	}
	args := strings.Fields(strings.ReplaceAll(line, installedConfig, r.file))
	if args[0] != "/usr/bin/ftplockd" {
		t.Fatalf("systemd does not learn the result of %s", line)
	}
	for text, want := range map[string]int{"": exitOK, "nonsense = 1\n": exitUsage, "[[lock]]\nmatch = '/taken/**'\n": exitFailure} {
		r.configure(text)
		if _, errs, status := runCommand(t.Context(), args[1:]...); status != want {
			t.Errorf("%q: status %d\n%s", text, status, errs)
		}
	}
}

func TestReloadChecksTheCertificateOfTheNextStart(t *testing.T) {
	r := startServer(t, "")
	r.configure("[tls]\nmode = 'optional'\ncertificate = '/no/such/file'\nkey = '/no/such/key'\n")
	r.refuses(exitFailure, "tls.certificate /no/such/file", "reload")
}
