//go:build linux

package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/etcdtest"
	"github.com/ftplockd/ftplockd/integration/harness"
)

// shows waits until "ftplockd cluster" prints a text that matches the pattern.
func (s *server) shows(t testing.TB, pattern string) {
	t.Helper()
	out := ""
	defer func() {
		if t.Failed() {
			t.Logf("ftplockd cluster printed\n%s", out)
		}
	}()
	expression := regexp.MustCompile(pattern)
	harness.Await(t, "ftplockd cluster prints "+pattern, func() bool {
		_, out = s.run(t, "cluster")
		return expression.MatchString(out)
	})
}

// What "ftplockd cluster" prints with a server that stands by, and with an active one that is suspended.
const (
	standsBy    = `standby 1 `
	isSuspended = `(?s)suspended +\S+ .*; the active server has been suspended since 20.*: etcd `
)

// grants waits until one of the servers grants a lock.
func (c *cluster) grants(t testing.TB, servers []*server) {
	t.Helper()
	harness.Await(t, "another server grants a lock", func() bool {
		for _, s := range servers {
			session, err := harness.Login(nil, s.address, account, time.Second)
			if err != nil {
				continue
			}
			r, err := session.Try("MKD /next_lock")
			session.Conn.Close()
			if err == nil && r.Code == 257 {
				return true
			}
		}
		return false
	})
}

// A server that receives etcd's answers too late can grant nothing, and hands over. It stands by again when etcd answers it in time.
func TestASlowWayToEtcdEndsATerm(t *testing.T) {
	t.Parallel()
	c := start(t, setup{tables: hour, ttl: 4 * time.Second, timeout: 900 * time.Millisecond})
	a := c.active(t)
	others := c.others(a)
	others[0].shows(t, standsBy)
	r := a.process()
	a.toEtcd(func(r *etcdtest.Relay) { r.Delay(600 * time.Millisecond) })
	others[0].shows(t, isSuspended+`|term 2;`) // on a slow machine the command may print the next term only
	c.grants(t, others)
	<-r.exited
	harness.Await(t, "its state has the reason why it does not stand by", func() bool {
		return strings.Contains(a.get("/healthz").Text, "standby: etcd ")
	})
	a.toEtcd((*etcdtest.Relay).Heal)
	others[0].shows(t, standsBy)
}

// Servers that start before their shared file system is mounted wait for it.
func TestServersWaitForTheSharedFileSystem(t *testing.T) {
	t.Parallel()
	c := prepare(t, setup{tables: hour})
	shared := filepath.Join(filepath.Dir(c.root), "shared")
	if err := os.Rename(shared, shared+".away"); err != nil {
		t.Fatal(err)
	}
	for _, s := range c.servers {
		s.supervise()
	}
	c.servers[0].shows(t, `(?s)not ready: etcd.shared_state: .*not ready: etcd.shared_state: `)
	if err := os.Rename(shared+".away", shared); err != nil {
		t.Fatal(err)
	}
	c.session(t, account).Want(257, "MKD /job")
}

// The active server hands over if it alone cannot reach its files, and stands by when it reaches them again.
func TestAServerThatLosesItsFilesHandsOver(t *testing.T) {
	t.Parallel()
	how := setup{tables: hour}
	c := prepare(t, how)
	shared := filepath.Join(filepath.Dir(c.root), "shared")
	link := func(s *server, name string) string { return filepath.Join(filepath.Dir(s.config), name) }
	mount := func(s *server) {
		if err := errors.Join(os.Symlink(c.root, link(s, "files")), os.Symlink(shared, link(s, "shared"))); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range c.servers {
		mount(s)
		s.configure(link(s, "files"), link(s, "shared"), how)
		s.supervise()
	}
	a := c.active(t)
	a.shows(t, standsBy)
	r := a.process()
	if err := errors.Join(os.Remove(link(a, "files")), os.Remove(link(a, "shared"))); err != nil {
		t.Fatal(err)
	}
	c.grants(t, c.others(a))
	<-r.exited
	a.shows(t, `not ready: (root|etcd.shared_state): `)
	mount(a)
	a.shows(t, standsBy)
	if n := len(c.terms()); n != 2 {
		t.Errorf("%d terms, want 2", n)
	}
}

// A server that is cut off from etcd lists no locks, because another server may have granted them again. It keeps its sessions, and refuses connections,
// so clients find the other server.
func TestAServerThatIsCutOffListsNoLocks(t *testing.T) {
	t.Parallel()
	c := start(t, setup{tables: hour})
	a := c.active(t)
	session := c.session(t, account)
	session.Want(257, "MKD /job")
	if status, out := a.run(t, "locks"); status != 0 || !strings.Contains(out, "/job") {
		t.Errorf("locks: %d %s", status, out)
	}
	if r := a.get("/"); !strings.Contains(r.Text, "/job") || strings.Contains(r.Text, "may have granted") {
		t.Errorf("the page: %v", r)
	}
	a.toEtcd((*etcdtest.Relay).Cut)
	c.grants(t, c.others(a))
	if status, out := a.run(t, "locks"); status != 69 || !strings.Contains(out, "not now: ") || strings.Contains(out, "/job") {
		t.Errorf("locks of a server that is cut off: %d %s", status, out)
	}
	harness.Await(t, "the page marks its locks", func() bool {
		r := a.get("/")
		return strings.Contains(r.Text, "suspended since 20") && strings.Contains(r.Text, "Another server may have granted these locks again")
	})
	session.Want(451, "MKD /kept", "not now")
	harness.Await(t, "it refuses connections", func() bool { return !a.connects() })
	if r := a.get("/metrics"); !strings.Contains(r.Text, `ftplockd_cluster_state{state="suspended"} 1`) || strings.Contains(r.Text, "ftplockd_cluster_suspended_seconds 0\n") {
		t.Errorf("metrics: %v", r)
	}
}

// "ftplockd cluster" fails while no server is active.
func TestTheClusterCommandReportsThatNoServerIsActive(t *testing.T) {
	t.Parallel()
	c := prepare(t, setup{tables: hour})
	a := c.servers[0]
	type view struct {
		Members []struct {
			State   string
			Answers bool
		}
		Servers []struct {
			State     string
			Addresses []string
		}
		Term int
		Beat float64 `json:"beat_seconds"`
	}
	read := func() (status int, v view) {
		cmd := exec.CommandContext(t.Context(), a.program, "cluster", "--json", "--config", a.config)
		cmd.Env = append(harness.Environment(), a.env...)
		out, _ := cmd.Output()
		if err := json.Unmarshal(out, &v); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		return cmd.ProcessState.ExitCode(), v
	}
	if status, v := read(); status != 1 || len(v.Members) != 1 || !v.Members[0].Answers || v.Servers == nil || len(v.Servers) != 0 {
		t.Errorf("without a server: status %d, %+v", status, v)
	}
	if status, out := a.run(t, "cluster"); status != 1 || !strings.Contains(out, "no server is active") {
		t.Errorf("without a server: status %d, %s", status, out)
	}
	a.supervise()
	c.session(t, account).Conn.Close()
	a.shows(t, "last sign of life")
	if status, v := read(); status != 0 || len(v.Servers) != 1 || v.Servers[0].State != "active" || v.Servers[0].Addresses[0] != a.address || v.Term != 1 {
		t.Errorf("with a server: status %d, %+v", status, v)
	}
}

// Servers with other settings would refuse clients after a takeover. A reload at either server changes the comparison.
func TestSettingsThatDifferAreReported(t *testing.T) {
	t.Parallel()
	c := prepare(t, setup{tables: hour})
	extra := func(s *server, from, to string) {
		text, err := os.ReadFile(s.config)
		if err == nil {
			err = os.WriteFile(s.config, bytes.Replace(text, []byte(from), []byte(to), 1), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	extra(c.servers[1], "[etcd]", "[files]\nmode = '600'\n[etcd]")
	extra(c.servers[1], "[[account]]", "[[account]]\nchmod = false")
	c.servers[0].supervise()
	a := c.active(t)
	c.servers[1].supervise()
	b := c.servers[1]
	a.shows(t, `warning: .* has other settings than the active server: account, files.mode\n`)
	harness.Await(t, "the log of the standby has the keys", func() bool {
		return strings.Contains(b.log.String(), `keys="account, files.mode"`)
	})
	if r := b.get("/metrics"); !strings.Contains(r.Text, "ftplockd_cluster_differing_settings 2\n") {
		t.Error("the metrics lack the number of keys")
	}
	reload := func(s *server) {
		if status, out := s.run(t, "reload"); status != 0 {
			t.Fatal(out)
		}
	}
	extra(b, "mode = '600'", "")
	reload(b)
	a.shows(t, `than the active server: account\n`)
	extra(a, "[[account]]", "[[account]]\nchmod = false")
	reload(a)
	harness.Await(t, "nothing differs", func() bool {
		_, out := a.run(t, "cluster")
		return strings.Contains(out, "standby 1") && !strings.Contains(out, "warning")
	})
	harness.Await(t, "the standby logs that nothing differs", func() bool { return strings.Contains(b.log.String(), "this server has the settings of the active one") })
	if status, out := a.run(t, "cluster", "--json"); status != 0 || strings.Contains(out, "settings") {
		t.Errorf("the hashes are printed: %s", out)
	}
}

// The package starts its service at the installation, so a journal exists before [etcd] is configured.
func TestAJournalWithoutHeldLocksDoesNotBlockTheStart(t *testing.T) {
	t.Parallel()
	c := prepare(t, setup{tables: hour})
	last := uint64(0)
	for i, s := range c.servers {
		dir := filepath.Dir(s.config)
		config := filepath.Join(dir, "before.toml")
		text := fmt.Sprintf("listen = [%q]\nroot = %q\nstate = %q\nhttp.listen = ''\n%s", s.address, filepath.Join(dir, "files"), filepath.Join(dir, "state"), hour) + harness.Accounts()
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(s.program, "--config", config)
		cmd.Env = append(harness.Environment(), s.env...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		session, err := harness.LoginAny([]string{s.address}, account, 0)
		for end := time.Now().Add(patience); err != nil && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			session, err = harness.LoginAny([]string{s.address}, account, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		session.T = t
		for range 3 * (i + 1) {
			last = harness.Token(session.Want(257, "MKD /job"))
			session.Want(250, "RMD /job")
		}
		session.Conn.Close()
		if err := errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait()); err != nil {
			t.Fatal(err)
		}
	}
	c.servers[1].supervise()
	c.session(t, account).Conn.Close()
	c.servers[0].supervise()
	s := c.session(t, account)
	if token := harness.Token(s.Want(257, "MKD /job")); token <= last {
		t.Errorf("token %d after %d", token, last)
	}
}

// The log, the metrics and ftplockd cluster report that etcd's database is nearly full, and then that it is full.
func TestADatabaseThatFillsUpIsReported(t *testing.T) {
	t.Parallel()
	c := start(t, setup{ttl: 10 * time.Second, tables: hour, etcd: []string{"--quota-backend-bytes", "67108864"}})
	for _, s := range c.servers {
		s.mayLog = "etcd has no space left"
	}
	a := c.active(t)
	client := c.client(t)
	defer client.Close()
	put := func() error {
		_, err := client.Put(client.Ctx(), "fill", strings.Repeat("x", 256<<10))
		return err
	}
	for size := int64(0); size < 67108864/5*4; {
		err := put()
		if err != nil {
			t.Fatal(err)
		}
		status, err := client.Status(client.Ctx(), c.etcd.Endpoints()[0])
		if err != nil {
			t.Fatal(err)
		}
		size = status.DbSize
	}
	harness.Await(t, "the log has a warning", func() bool { return strings.Contains(a.log.String(), "etcd's database is nearly full") })
	if strings.Contains(a.log.String(), "level=ERROR") {
		t.Error("the database is full already")
	}
	for put() == nil {
	}
	harness.Await(t, "the log has an error", func() bool { return strings.Contains(a.log.String(), "level=ERROR msg=\"etcd has no space left") })
	r := a.get("/metrics")
	// A full database is somewhat smaller or larger than its quota.
	for _, want := range []string{`ftplockd_etcd_no_space 1\n`, `ftplockd_etcd_quota_bytes 6\.7108864e\+07\n`, `ftplockd_etcd_database_bytes [678]\.\d*e\+07\n`} {
		if !regexp.MustCompile(want).MatchString(r.Text) {
			t.Errorf("no %s in the metrics", want)
		}
	}
	a.shows(t, "NOSPACE")
}
