//go:build linux

package clients

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jlaffaye/ftp"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// reasons returns the first reason that there is.
func reasons(all ...func(way) string) func(way) string {
	return func(w way) string {
		for _, reason := range all {
			if r := reason(w); r != "" {
				return r
			}
		}
		return ""
	}
}

func onlyPassive(w way) string { return choose(w.passive, "", "the client has no active mode") }

func passiveUnderTLS(w way) string {
	return choose(w.passive || w.plain, "", "the client before 8.0 sends plain bytes on active data connections after PROT P")
}

func onlyUnderTLS(w way) string { return choose(w.plain, "no promise is made without TLS", "") }

func onlyPlain(w way) string { return choose(w.plain, "", "the client has no TLS") }

func onlyIPv4(w way) string { return choose(w.v6, "the client has no IPv6", "") }

// activeIPv4 is for lftp 4.9: it sends EPRT |2|::|, is refused, and goes on in passive mode half a minute later.
func activeIPv4(w way) string {
	return choose(w.v6 && !w.passive, "the client names no IPv6 address", "")
}

func onlyExplicit(w way) string {
	return choose(w.implicit, "the client has no implicit TLS", "")
}

// resumesOnce is for OpenSSL 3: it drops the session of TLS 1.2 when the resumed handshake brings a new ticket.
func resumesOnce(w way) string {
	return choose(w.reuse && w.version == "1.2", "the client resumes its session for the first transfer only", "")
}

// ignoresTicket is for clients that close an uploaded data connection before they read the server's ticket for the next one: their
// system resets the connection then, and the upload is cut off.
func ignoresTicket(w way) string {
	return choose(w.reuse && w.version == "1.3", "the client does not read the ticket behind an upload", "")
}

func noTicket(w way) string {
	return choose(w.reuse && w.version == "1.2", "curl asks for no ticket under TLS 1.2", "")
}

func resumesNever(w way) string {
	return choose(w.reuse, "the client does not resume its session", "")
}

var clients = []client{
	{name: "curl", programs: []string{"curl"}, does: all, do: curl, cannot: reasons(passiveUnderTLS, noTicket)},
	{name: "lftp", programs: []string{"lftp"}, does: all, do: lftp, cannot: activeIPv4},
	{name: "ftplib", programs: []string{"python3"}, does: all, do: script("python3", "client.py")},
	{name: "Net::FTP", programs: []string{"perl"}, does: all, do: script("perl", "client.pl"), cannot: resumesNever},
	{name: "PHP", programs: []string{"php"}, does: all, do: script("php", "client.php"), cannot: reasons(onlyExplicit, resumesOnce)},
	{name: "Ruby", programs: []string{"ruby"}, does: all, do: script("ruby", "client.rb"), cannot: reasons(onlyUnderTLS, onlyExplicit, resumesOnce, ignoresTicket)},
	{name: "basic-ftp", programs: []string{"node", "npm"}, does: all, do: basicFTP, cannot: reasons(onlyUnderTLS, onlyPassive)},
	{name: "Commons Net", programs: []string{"java", "javac"}, does: all, do: commonsNet, cannot: reasons(onlyUnderTLS, resumesNever)},
	{name: "jlaffaye", does: all, do: jlaffaye, cannot: onlyPassive, crlf: true},
	{name: "ncftp", programs: []string{"ncftpget", "ncftpput", "ncftpls"}, does: all, do: ncftp, cannot: reasons(onlyPlain, onlyIPv4)},
	{name: "tnftp", programs: []string{"tnftp"}, does: all, do: tnftp, cannot: onlyPlain},
	{name: "rclone", programs: []string{"rclone"}, does: transfers | downloads | lists | deletes, do: rclone, cannot: reasons(onlyUnderTLS, onlyPassive)},
	{name: "gftp", programs: []string{"gftp-text"}, does: all, do: gftp, cannot: reasons(onlyUnderTLS, ignoresTicket)},
	{name: "wget", programs: []string{"wget"}, does: downloads | lists, do: wget, cannot: onlyUnderTLS},
	{name: "git-ftp", programs: []string{"git-ftp", "git"}, does: transfers | deletes, do: gitFTP, cannot: reasons(onlyUnderTLS, onlyPassive, noTicket)},
}

// script does the job with a program in testdata.
func script(interpreter, file string) func(testing.TB, job) string {
	return func(t testing.TB, j job) string {
		program, err := filepath.Abs(filepath.Join("testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		return j.must(t, j.openssl(t), interpreter, program)
	}
}

// openssl returns the environment that restricts OpenSSL to the version, for programs without a setting of their own.
func (j job) openssl(t testing.TB) []string {
	if j.plain {
		return nil
	}
	file := filepath.Join(j.dir, "openssl.cnf")
	write(t, file, []byte(fmt.Sprintf("openssl_conf = a\n[a]\nssl_conf = b\n[b]\nsystem_default = c\n[c]\nMinProtocol = TLSv%s\nMaxProtocol = TLSv%[1]s\n", j.version)))
	return []string{"OPENSSL_CONF=" + file}
}

func curl(t testing.TB, j job) string {
	url := j.url(choose(j.implicit, "ftps", "ftp")) + "/"
	options := []string{"curl", "-sS", "-v", "-u", harness.Account + ":" + harness.Password}
	if !j.plain {
		options = append(options, "--ssl-reqd", "--cacert", j.ca, "--tlsv"+j.version, "--tls-max", j.version)
	}
	if !j.passive {
		options = append(options, "--ftp-port", "-")
	}
	do := func(args ...string) string { return j.must(t, nil, slices.Concat(options, args)...) }
	do("-I", "-Q", "MKD mine_lock", url)
	refused, _ := j.run(t, nil, append(options, "-I", "-Q", "MKD taken_lock", url)...)
	if j.ascii {
		options = append(options, "--use-ascii")
	}
	do("-T", "one", url+"file", "-T", "one", url+"gone")
	do("-T", "two", url+"file")
	do("-o", "down", url+"file")
	list := do("-l", url)
	do("-I", "-Q", "RNFR gone", "-Q", "RNTO kept", "-Q", "DELE kept", "-Q", "RMD mine_lock", url)
	return refused + list
}

func lftp(t testing.TB, j job) string {
	secure := "set ftp:ssl-allow no"
	if !j.plain {
		secure = fmt.Sprintf("set ssl:ca-file %s; set ssl:priority NORMAL:-VERS-ALL:+VERS-TLS%s; set ftp:ssl-force yes; set ftp:ssl-protect-data yes", j.ca, j.version)
	}
	return j.must(t, nil, "lftp", "-c", fmt.Sprintf(`set net:max-retries 1; set net:timeout 30; set cmd:fail-exit yes; %s; set ftp:passive-mode %s;
open -u %s,%s %s
mkdir mine_lock
mkdir taken_lock || echo
put %[6]s one -o file; put %[6]s two -o file; put %[6]s one -o gone; get %[6]s file -o down; cls -1; mv gone kept; rm kept; rmdir mine_lock`,
		secure, choose(j.passive, "yes", "no"), harness.Account, harness.Password, j.url(choose(j.implicit, "ftps", "ftp")), choose(j.ascii, "-a", "")))
}

// ncftp's own mkdir hides that a directory was there already, so its user says MKD as a raw command.
func ncftp(t testing.TB, j job) string {
	options := []string{"-u", harness.Account, "-p", harness.Password, "-P", j.port, "-t", "20", choose(j.passive, "-F", "-E")}
	kind := options[:len(options):len(options)]
	if j.ascii {
		kind = append(kind, "-a")
	}
	raw := func(commands ...string) string { // its exit status means nothing
		line := slices.Concat([]string{"ncftpls", "-d", "stdout", "-Z"}, options)
		for _, c := range commands {
			line = append(line, "-W", c)
		}
		out, _ := j.run(t, nil, append(line, "ftp://"+j.host+"/")...)
		return out
	}
	put := func(local, name string) {
		j.must(t, nil, slices.Concat([]string{"ncftpput"}, kind, []string{"-C", j.host, local, "/" + name})...)
	}
	out := raw("MKD mine_lock", "MKD taken_lock")
	put("one", "file")
	put("two", "file")
	put("one", "gone")
	j.must(t, nil, slices.Concat([]string{"ncftpget"}, kind, []string{"-C", j.host, "/file", "down"})...)
	out += j.must(t, nil, slices.Concat([]string{"ncftpls"}, options, []string{"-1", "ftp://" + j.host + "/"})...)
	return out + raw("RNFR gone", "RNTO kept", "DELE kept", "RMD mine_lock")
}

func tnftp(t testing.TB, j job) string {
	write(t, filepath.Join(j.dir, "in"), []byte(fmt.Sprintf(`user %s %s
passive %s
%s
mkdir mine_lock
mkdir taken_lock
put one file
put two file
put one gone
get file down
ls
rename gone kept
delete kept
rmdir mine_lock
quit
`, harness.Account, harness.Password, choose(j.passive, "on", "off"), choose(j.ascii, "ascii", "binary"))))
	return j.must(t, nil, "sh", "-c", `exec tnftp -i -n -v -q 20 "$@" <in`, "sh", j.host, j.port)
}

// modules returns the directory of Node's packages.
var modules = sync.OnceValues(func() (string, error) { return output("npm", "root", "--global") })

func basicFTP(t testing.TB, j job) string {
	modules, err := modules()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(modules, "basic-ftp")); err != nil {
		harness.Missing(t, "basic-ftp is not installed")
	}
	program, err := filepath.Abs("testdata/client.js")
	if err != nil {
		t.Fatal(err)
	}
	return j.must(t, []string{"NODE_PATH=" + modules}, "node", program)
}

// library is Apache Commons Net.
const library = "/usr/share/java/commons-net.jar"

// classes compiles testdata/Client.java, and returns the directory of its classes.
var classes = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(filepath.Dir(binary), "classes")
	_, err := output("javac", "-cp", library, "-d", dir, "testdata/Client.java")
	return dir, err
})

func commonsNet(t testing.TB, j job) string {
	if _, err := os.Stat(library); err != nil {
		harness.Missing(t, "Apache Commons Net is not installed")
	}
	classes, err := classes()
	if err != nil {
		t.Fatal(err)
	}
	return j.must(t, nil, "java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", library+":"+classes, "Client")
}

// tlsConfig trusts the server, and resumes sessions.
func (j job) tlsConfig(t testing.TB) *tls.Config {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(read(t, j.ca))
	v := map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}[j.version]
	return &tls.Config{RootCAs: roots, ServerName: j.host, MinVersion: v, MaxVersion: v, ClientSessionCache: tls.NewLRUClientSessionCache(0)}
}

func jlaffaye(t testing.TB, j job) string {
	options := []ftp.DialOption{ftp.DialWithTimeout(30 * time.Second)}
	switch {
	case j.implicit:
		options = append(options, ftp.DialWithTLS(j.tlsConfig(t)))
	case !j.plain:
		options = append(options, ftp.DialWithExplicitTLS(j.tlsConfig(t)))
	}
	c, err := ftp.Dial(net.JoinHostPort(j.host, j.port), options...)
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(c.Login(harness.Account, harness.Password))
	if j.ascii {
		must(c.Type(ftp.TransferTypeASCII))
	}
	must(c.MakeDir("mine_lock"))
	var refused *textproto.Error
	if err := c.MakeDir("taken_lock"); !errors.As(err, &refused) {
		t.Fatal(err)
	}
	one, two := read(t, filepath.Join(j.dir, "one")), read(t, filepath.Join(j.dir, "two"))
	must(c.Stor("file", bytes.NewReader(one)))
	must(c.Stor("file", bytes.NewReader(two)))
	must(c.Stor("gone", bytes.NewReader(one)))
	r, err := c.Retr("file")
	must(err)
	down, err := io.ReadAll(r)
	must(errors.Join(err, r.Close()))
	write(t, filepath.Join(j.dir, "down"), down)
	names, err := c.NameList(".")
	must(err)
	must(c.Rename("gone", "kept"))
	must(c.Delete("kept"))
	must(c.RemoveDir("mine_lock"))
	must(c.Quit())
	return refused.Msg + strings.Join(names, " ")
}

// obscured returns the password as rclone expects it.
var obscured = sync.OnceValues(func() (string, error) { return output("rclone", "obscure", harness.Password) })

func rclone(t testing.TB, j job) string {
	password, err := obscured()
	if err != nil {
		t.Fatal(err)
	}
	options := []string{"rclone", "--config", os.DevNull, "--retries", "1", "--ftp-host", j.host, "--ftp-port", j.port,
		"--ftp-user", harness.Account, "--ftp-pass", password, choose(j.implicit, "--ftp-tls", "--ftp-explicit-tls")}
	if j.version == "1.2" {
		options = append(options, "--ftp-disable-tls13")
	}
	do := func(args ...string) string {
		return j.must(t, []string{"SSL_CERT_FILE=" + j.ca}, append(options, args...)...)
	}
	do("copyto", "one", ":ftp:file")
	do("copyto", "two", ":ftp:file")
	do("copyto", "one", ":ftp:gone")
	do("copyto", ":ftp:file", "down")
	do("deletefile", ":ftp:gone")
	return do("lsf", ":ftp:")
}

// gftp gives a file the same name on both sides, and lists a directory once for each session.
func gftp(t testing.TB, j job) string {
	open := fmt.Sprintf("set verify_ssl_peer=0\nset passive_transfer=%s\nopen %s://%s:%s@%s:%s/\n", choose(j.passive, "1", "0"), choose(j.implicit, "ftpsi", "ftps"),
		harness.Account, harness.Password, j.host, j.port)
	session := func(commands string) string {
		write(t, filepath.Join(j.dir, "in"), []byte(open+commands+"quit\n"))
		return j.must(t, j.openssl(t), "sh", "-c", "gftp-text <in")
	}
	j.must(t, nil, "sh", "-c", "cp one file; cp one gone; mkdir got")
	out := session("mkdir mine_lock\nmkdir taken_lock\nput file\nput gone\n")
	j.must(t, nil, "cp", "two", "file")
	session("put file\n")
	out += session("ls\nlcd got\nget file\ndelete gone\nrmdir mine_lock\n")
	j.must(t, nil, "mv", "got/file", "down")
	return out
}

func wget(t testing.TB, j job) string {
	options := []string{"wget", "-q", "--ca-certificate", j.ca, "--ciphers", "NORMAL:-VERS-ALL:+VERS-TLS" + j.version, "--tries", "1",
		"--user", harness.Account, "--password", harness.Password}
	if j.implicit {
		options = append(options, "--ftps-implicit")
	}
	if !j.passive {
		options = append(options, "--no-passive-ftp")
	}
	j.must(t, nil, append(options, "-O", "down", j.url("ftps")+"/file")...)
	return j.must(t, nil, append(options, "-O", "-", j.url("ftps")+"/")...)
}

func gitFTP(t testing.TB, j job) string {
	write(t, filepath.Join(j.dir, ".curlrc"), []byte("tlsv"+j.version+"\ntls-max = "+j.version+"\n"))
	git := func(args ...string) {
		j.must(t, nil, append([]string{"git", "-C", "site", "-c", "user.name=a", "-c", "user.email=a@b"}, args...)...)
	}
	deploy := func(action string, file ...string) {
		git("add", "--all")
		git("commit", "--quiet", "--message", action)
		j.must(t, nil, "sh", "-c", `cd site && git ftp "$@"`, "sh", action, "--user", harness.Account, "--passwd", harness.Password, "--cacert", j.ca,
			j.url(choose(j.implicit, "ftps", "ftpes"))+"/")
	}
	j.must(t, nil, "git", "init", "--quiet", "site")
	j.must(t, nil, "cp", "one", "site/file")
	j.must(t, nil, "cp", "one", "site/gone")
	deploy("init")
	j.must(t, nil, "cp", "two", "site/file")
	j.must(t, nil, "rm", "site/gone")
	deploy("push")
	return ""
}
