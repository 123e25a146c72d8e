//go:build linux

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

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

// A server that receives etcd's answers too late, or not at all, can grant nothing. Another server takes over. The first one stands by again when etcd
// answers it in time.
func TestASlowWayToEtcdEndsATerm(t *testing.T) {
	for name, slow := range map[string]func(*etcdtest.Relay){
		"answers are late": func(r *etcdtest.Relay) { r.Delay(400 * time.Millisecond) },
		"answers are lost": (*etcdtest.Relay).HoldReplies,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cl := start(t, setup{tables: hour, timeout: 450 * time.Millisecond})
			a := cl.active(t)
			b := cl.others(a)[0]
			b.shows(t, standsBy)
			r := a.process()
			began := time.Now()
			a.toEtcd(slow)
			b.shows(t, isSuspended+`|term 2;`) // on a slow machine the command may print the next term only
			cl.grants(t, cl.others(a))
			t.Logf("another server grants after %v", time.Since(began))
			if name == "answers are late" {
				<-r.exited // it has handed over
				harness.Await(t, "its state has the reason why it does not stand by", func() bool {
					return strings.Contains(a.get("/healthz").Text, "standby: etcd ")
				})
				if n := len(cl.line(t)); n != 1 {
					t.Errorf("%d servers are active or stand by, want 1", n)
				}
			}
			a.toEtcd((*etcdtest.Relay).Heal)
			harness.Await(t, "it stands by again", func() bool { return len(cl.line(t)) == 2 })
			if n := len(cl.terms()); n != 2 {
				t.Errorf("%d terms, want 2", n)
			}
		})
	}
}

// While etcd is slow for all servers, none takes over, and sessions stay.
func TestAnEtcdThatIsSlowForAllEndsNoTerm(t *testing.T) {
	t.Parallel()
	c := start(t, setup{tables: hour, timeout: 450 * time.Millisecond})
	a := c.active(t)
	c.others(a)[0].shows(t, standsBy)
	s := c.session(t, account)
	for _, each := range c.servers {
		each.toEtcd(func(r *etcdtest.Relay) { r.Delay(400 * time.Millisecond) })
	}
	a.shows(t, isSuspended)
	harness.Await(t, "the server refuses connections", func() bool { return !a.connects() })
	time.Sleep(3 * historyTTL) // nothing may happen
	for _, each := range c.servers {
		each.toEtcd((*etcdtest.Relay).Heal)
	}
	harness.Await(t, "locks are granted again", func() bool {
		r, err := s.Try("MKD /job")
		if err != nil {
			t.Fatal(err)
		}
		return r.Code == 257
	})
	harness.Await(t, "the server accepts connections again", a.connects)
	if n := len(c.terms()); n != 1 {
		t.Errorf("%d terms, want 1", n)
	}
}

// After step-down an operator may stop the first server: the next one serves.
func TestStepDownReturnsWhenTheNextServerServes(t *testing.T) {
	t.Parallel()
	c := start(t, setup{tables: hour})
	a := c.active(t)
	b := c.others(a)[0]
	b.shows(t, standsBy)
	status, out := a.run(t, "cluster", "step-down")
	if !b.connects() {
		t.Error("the next server does not serve")
	}
	if status != 0 || !strings.Contains(out, "("+b.address+") has taken over") {
		t.Errorf("step-down: %d %s", status, out)
	}
	b.shows(t, `active +\S+ +`+regexp.QuoteMeta(b.address))
}

// A server whose address is in use does not stand by, and stands by when the address is free.
func TestAServerThatCouldNotServeDoesNotStandBy(t *testing.T) {
	t.Parallel()
	c := start(t, setup{tables: hour})
	a := c.active(t)
	b := c.others(a)[0]
	b.shows(t, standsBy)
	l, err := net.Listen("tcp", b.address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a.shows(t, `not ready: listen: .* in use +\S+ +`+regexp.QuoteMeta(b.address))
	if r := b.get("/readyz"); r.Code != 503 || !strings.Contains(r.Text, "not ready: listen: ") {
		t.Errorf("readyz: %v", r)
	}
	if status, out := a.run(t, "cluster", "step-down"); status == 0 || !strings.Contains(out, "no server stands by") {
		t.Errorf("step-down: %d %s", status, out)
	}
	l.Close()
	b.shows(t, standsBy)
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

// A server that is cut off from etcd lists no locks, because another server may have granted them again.
func TestAServerThatIsCutOffListsNoLocks(t *testing.T) {
	t.Parallel()
	c := start(t, setup{tables: hour})
	a := c.active(t)
	c.session(t, account).Want(257, "MKD /job")
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

// users adds the users of etcd, root and one for the servers, and enables passwords. It returns root's client.
func (c *cluster) users(t testing.TB) *clientv3.Client {
	t.Helper()
	client := c.client(t)
	defer client.Close()
	ctx := client.Ctx()
	_, err := client.UserAdd(ctx, "root", "secret")
	do := func(f func() error) {
		if err == nil {
			err = f()
		}
	}
	do(func() error { _, err := client.UserGrantRole(ctx, "root", "root"); return err })
	do(func() error { _, err := client.RoleAdd(ctx, "servers"); return err })
	do(func() error {
		_, err := client.RoleGrantPermission(ctx, "servers", prefix, clientv3.GetPrefixRangeEnd(prefix), clientv3.PermissionType(clientv3.PermReadWrite))
		return err
	})
	do(func() error { _, err := client.UserAdd(ctx, "ftplockd", "word"); return err })
	do(func() error { _, err := client.UserGrantRole(ctx, "ftplockd", "servers"); return err })
	do(func() error { _, err := client.AuthEnable(ctx); return err })
	if err != nil {
		t.Fatal(err)
	}
	root, err := clientv3.New(clientv3.Config{Endpoints: c.etcd.Endpoints(), Username: "root", Password: "secret", Context: ctx})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root
}

// The state of a server has the reason why etcd refuses it, and the server is not ready.
func TestServersReportWhatEtcdRefuses(t *testing.T) {
	t.Parallel()
	word := filepath.Join(t.TempDir(), "word")
	if err := os.WriteFile(word, []byte("word\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// etcd computes a slow hash for a password.
	c := prepare(t, setup{ttl: 8 * time.Second, timeout: 1900 * time.Millisecond, tables: hour, keys: fmt.Sprintf("user = 'ftplockd'\npassword_file = %q\n", word)})
	root := c.users(t)
	for _, s := range c.servers {
		s.supervise()
	}
	a := c.active(t)
	b := c.others(a)[0]
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	harness.Await(t, "the standby reports the active server with its address", func() bool {
		return strings.Contains(b.get("/healthz").Text, fmt.Sprintf("standby: %s (%s) is active", host, a.address))
	})
	b.kill()
	if err := os.WriteFile(word, []byte("wrong\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.resume()
	harness.Await(t, "a standby reports that etcd refuses its password", func() bool {
		return strings.Contains(b.get("/readyz").Text, "standby: etcd refuses its user and password")
	})
	if _, err := root.RoleRevokePermission(context.Background(), "servers", prefix, clientv3.GetPrefixRangeEnd(prefix)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(readyAge)
	if r := a.get("/readyz"); r.Code != 503 || !strings.Contains(r.Text, "its user has no right to read and write the keys below etcd.prefix") {
		t.Errorf("after its rights were revoked: %v", r)
	}
}

// readyAge is the age up to which a beat counts for /readyz.
const readyAge = 200 * time.Millisecond

// If a request is too large for etcd, the reply contains the remedy.
func TestTheReplyReportsThatARequestIsTooLarge(t *testing.T) {
	t.Parallel()
	c := start(t, setup{ttl: 10 * time.Second, tables: hour, etcd: []string{"--max-request-bytes", "1200"}})
	s := c.session(t, account)
	s.Want(200, "SITE LOCK AS "+strings.Repeat("n", 60))
	name := "MKD /" + strings.Repeat("d", 230)
	for i := range 50 { // their history is one request
		if r, err := s.Try(fmt.Sprint(name, i)); err != nil || r.Code != 257 && r.Code != 451 { // the writer may send the history in between
			t.Fatal(r, err)
		}
	}
	harness.Await(t, "a reply contains the remedy", func() bool {
		r, err := s.Try("MKD /job")
		if err != nil {
			t.Fatal(err)
		}
		if r.Code != 451 {
			_, _ = s.Try("RMD /job") // its history may be sent with it
		}
		return r.Code == 451 && strings.Contains(r.Text, "--max-request-bytes")
	})
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
