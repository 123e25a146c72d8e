//go:build linux

package deployments

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
	"github.com/ftplockd/ftplockd/integration/peers"
)

// long runs many rounds.
var long = flag.Bool("long", false, "run many rounds")

// binary is the built ftplockd.
var binary string

func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, "8", func(dir string) error {
		binary = filepath.Join(dir, "ftplockd")
		return harness.Build("../../cmd/ftplockd", binary)
	}))
}

// rounds returns the number of rounds.
func rounds(few, many int) int {
	if *long {
		return many
	}
	return few
}

// automatic is a configuration with an automatic lock for the site.
const automatic = `
[[lock]]
match     = "/pub/www/.deploy-lock"
protects  = ["/pub/www/**"]
automatic = true
`

// bySession is automatic, for programs with one connection per job.
const bySession = automatic + "job = \"session\"\n"

// startFtplockd starts a server with accounts ci0 to ci3.
func startFtplockd(t testing.TB, rules string) *peers.Process {
	t.Helper()
	dir, root, err := peers.Work(t.TempDir(), "ftplockd")
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "ftplockd.toml")
	write(t, config, fmt.Sprintf("listen = [\"127.0.0.1:0\"]\nroot = %q\nstate = %q\n%s\n", root, filepath.Join(dir, "state"), rules)+harness.Accounts("ci0", "ci1", "ci2", "ci3"))
	return stopped(t)(launch(&peers.Process{Root: root}))
}

// launch starts an ftplockd with the configuration beside its root.
func launch(p *peers.Process) (*peers.Process, error) {
	p.Cmd = exec.Command(binary, "--config", filepath.Join(filepath.Dir(p.Root), "ftplockd.toml"), "--log-level", "error")
	p.Cmd.Env = append(harness.Environment(), "GORACE=atexit_sleep_ms=0")
	return p.LaunchAndRead("ftplockd listens on ")
}

// forget starts an ftplockd again without its state. The next job then need not wait for the grace of the job before.
func forget(t testing.TB, server *peers.Process) {
	t.Helper()
	if server.User != "" {
		return // vsftpd has no locks
	}
	err := errors.Join(server.Stop(), os.RemoveAll(filepath.Join(filepath.Dir(server.Root), "state")))
	if err == nil {
		_, err = launch(server)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// startVsftpd starts vsftpd, which has one account.
func startVsftpd(t testing.TB) *peers.Process {
	t.Helper()
	peer, err := peers.Get(t.Context(), "vsftpd")
	if err != nil {
		harness.Missing(t, err.Error())
	}
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) { // its sessions run as another user
		_ = os.Chmod(d, 0o755)
	}
	return stopped(t)(peer.Start(dir, peers.Certificate{}))
}

// stopped stops a started server at the end of the test.
func stopped(t testing.TB) func(*peers.Process, error) *peers.Process {
	return func(p *peers.Process, err error) *peers.Process {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Stop() })
		return p
	}
}

// contest is one round: several jobs that deploy different versions of a site.
type contest struct {
	program  program
	jobs     []*job
	base     version
	versions []version // of the jobs
	outcomes []outcome
}

// newContest deploys a first version and prepares n jobs, each from an account and an address of its own.
func newContest(t testing.TB, server *peers.Process, p program, n int) *contest {
	t.Helper()
	harness.Need(t, p.needs...)
	forget(t, server)
	if err := os.RemoveAll(filepath.Join(server.Root, site)); err != nil {
		t.Fatal(err)
	}
	c := &contest{program: p, base: newVersion("original"), outcomes: make([]outcome, n)}
	work := t.TempDir()
	first := c.newJob(t, server, filepath.Join(work, "base"), n)
	if p.prepare != nil {
		if err := os.MkdirAll(first.dir, 0o755); err != nil {
			t.Fatal(err)
		}
		git(t, first.dir, "init", "--quiet")
	}
	c.fill(t, first, c.base)
	for i := range n {
		dir := filepath.Join(work, fmt.Sprint("job", i))
		if out, err := exec.Command("cp", "--archive", first.dir, dir).CombinedOutput(); err != nil {
			t.Fatalf("cp: %v\n%s", err, out)
		}
		c.versions = append(c.versions, newVersion(fmt.Sprintf("v%d%s", i, strings.Repeat("x", i+1))))
		j := c.newJob(t, server, dir, i)
		c.jobs = append(c.jobs, j)
		c.fill(t, j, c.versions[i])
	}
	for _, j := range c.jobs { // each git-ftp has the commits of the others, as after a fetch
		for _, other := range c.jobs {
			if p.prepare != nil && other != j {
				git(t, j.dir, "fetch", "--quiet", other.dir)
			}
		}
	}
	if o := p.deploy(t.Context(), t, first); o.err != nil {
		t.Fatalf("the first deployment: %v\n%s", o.err, o.out)
	}
	forget(t, server)
	return c
}

func (c *contest) newJob(t testing.TB, server *peers.Process, dir string, i int) *job {
	j := &job{server: server, account: fmt.Sprintf("ci%d", i%4), address: fmt.Sprintf("127.0.0.%d", 10+i), dir: dir, home: t.TempDir()}
	if server.User != "" {
		j.account = server.User
	}
	return j
}

// fill makes a version the content of a job's directory.
func (c *contest) fill(t testing.TB, j *job, v version) {
	v.write(t, j.dir)
	if c.program.prepare != nil {
		c.program.prepare(t, j)
	}
}

// run runs the jobs. Each begins after a random delay of at most the stagger.
func (c *contest) run(t testing.TB, stagger time.Duration) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var jobs sync.WaitGroup
	for i, j := range c.jobs {
		delay := time.Duration(rand.Int64N(int64(stagger) + 1))
		jobs.Go(func() {
			time.Sleep(delay)
			c.outcomes[i] = c.program.deploy(ctx, t, j)
		})
	}
	jobs.Wait()
}

// check reports an error unless the site is the version of one successful job, or the first one if no job succeeded.
func (c *contest) check(t testing.TB) (succeeded int) {
	t.Helper()
	found := content(t, filepath.Join(c.jobs[0].server.Root, site))
	candidates := []version{}
	for i, o := range c.outcomes {
		if o.err == nil {
			succeeded++
			candidates = append(candidates, c.versions[i])
		}
	}
	if succeeded == 0 {
		candidates = append(candidates, c.base)
	}
	if _, ok := identify(found, candidates...); !ok {
		var b bytes.Buffer
		for i, o := range c.outcomes {
			fmt.Fprintf(&b, "job %d: %v\n%s\n", i, o.err, tail(o.out, 1500))
		}
		for _, v := range append(c.versions, c.base) {
			d := v.compare(found)
			fmt.Fprintf(&b, "%d differences from %s: %q\n", len(d), v.name, d[:min(len(d), 5)])
		}
		t.Errorf("the site is a mixture or of another job\n%s", b.String())
	}
	return succeeded
}

func tail(text string, n int) string { return text[max(0, len(text)-n):] }

// TestTwoDeploymentsAtOnceNeverMixASite runs two or four jobs of each program at once.
func TestTwoDeploymentsAtOnceNeverMixASite(t *testing.T) {
	t.Parallel()
	for i, p := range programs() {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			server := startFtplockd(t, automatic)
			total, succeeded, last := 0, 0, []outcome(nil)
			for round := range rounds(1, 40) {
				n := 2
				if (round+i)%4 == 1 {
					n = 4
				}
				c := newContest(t, server, p, n)
				c.run(t, time.Duration((round+i)%4)*time.Second)
				total, succeeded, last = total+n, succeeded+c.check(t), c.outcomes
			}
			t.Logf("%d of %d jobs succeeded", succeeded, total)
			if succeeded == 0 {
				t.Errorf("no job succeeded: %v", last)
			}
		})
	}
}

// TestProgramsWithOneConnectionSuitJobsBySession runs two jobs from one account and one address.
func TestProgramsWithOneConnectionSuitJobsBySession(t *testing.T) {
	t.Parallel()
	for _, p := range programs() {
		if !p.sessions {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			server := startFtplockd(t, bySession)
			for i := range rounds(1, 20) {
				c := newContest(t, server, p, 2)
				c.jobs[1].account, c.jobs[1].address = c.jobs[0].account, c.jobs[0].address
				c.run(t, time.Duration(i%4)*time.Second)
				c.check(t)
			}
		})
	}
}

// awaitIdle returns when the server has neither a session nor an automatic lock, whose grace begins at the end of the session.
func awaitIdle(t testing.TB, server *peers.Process) {
	t.Helper()
	harness.Await(t, "all sessions end", func() bool {
		out, err := exec.Command(binary, "sessions", "--json", "--config", filepath.Join(filepath.Dir(server.Root), "ftplockd.toml")).Output()
		if err != nil {
			t.Fatalf("ftplockd sessions: %v", err)
		}
		return string(bytes.TrimSpace(out)) == "[]"
	})
	boss, err := harness.Login(nil, server.Address, "boss", harness.Patience)
	if err != nil {
		t.Fatal(err)
	}
	defer boss.Conn.Close()
	harness.Await(t, "the grace ends", func() bool {
		r, err := boss.Try("SITE LOCK INFO " + site + "/.deploy-lock")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(r.Text, "type=free;")
	})
}

// TestTheNextJobRepairsTheSiteOfAKilledJob kills a job at a random moment. The next job starts after the grace.
func TestTheNextJobRepairsTheSiteOfAKilledJob(t *testing.T) {
	t.Parallel()
	for _, p := range programs() {
		if !p.exact {
			continue // its record does not contain the files of the killed job, on any server
		}
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			server := startFtplockd(t, automatic)
			for range rounds(2, 40) {
				c := newContest(t, server, p, 2)
				ctx, kill := context.WithTimeout(t.Context(), time.Duration(rand.Int64N(int64(time.Second))))
				first := p.deploy(ctx, t, c.jobs[0])
				kill()
				awaitIdle(t, server)
				if o := p.deploy(t.Context(), t, c.jobs[1]); o.err != nil {
					t.Fatalf("the job after a killed one (%v): %v\n%s", first.err, o.err, tail(o.out, 1500))
				}
				found := content(t, filepath.Join(server.Root, site))
				if d := c.versions[1].compare(found); len(d) > 0 {
					t.Errorf("after a killed job (%v) the site differs from the next job's version: %q", first.err, d)
				}
			}
		})
	}
}

// TestVsftpdMixesSites shows that the tests above can fail: the same jobs mix a site on a server without locks.
func TestVsftpdMixesSites(t *testing.T) {
	t.Parallel()
	server := startVsftpd(t)
	for i := range 5 {
		for _, p := range programs() {
			c := newContest(t, server, p, 2)
			c.run(t, time.Duration(i%2)*500*time.Millisecond)
			if _, ok := identify(content(t, filepath.Join(server.Root, site)), append(c.versions, c.base)...); !ok {
				t.Logf("round %d of %s mixed the site", i, p.name)
				return
			}
		}
	}
	t.Error("no round mixed the site: the jobs do not overlap")
}

// TestADatabaseSurvivesSimultaneousSaves saves as KeePass does: a temporary file, DELE, rename.
func TestADatabaseSurvivesSimultaneousSaves(t *testing.T) {
	t.Parallel()
	server := startFtplockd(t, strings.NewReplacer(".deploy-lock", ".save-lock").Replace(automatic))
	const database = site + "/passwords.kdbx"
	file := filepath.Join(server.Root, database)
	for round := range rounds(3, 30) {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, file, "before")
		var saves sync.WaitGroup
		texts, errs := make([]string, 2), make([]error, 2)
		for i := range 2 {
			texts[i] = strings.Repeat(fmt.Sprintf("round %d, client %d\n", round, i), 50000)
			j := &job{server: server, account: fmt.Sprint("ci", i), address: fmt.Sprintf("127.0.0.%d", 10+i)}
			saves.Go(func() { errs[i] = save(t.Context(), j, database, texts[i]) })
		}
		saves.Wait()
		got, err := os.ReadFile(file)
		want := "before"
		for i := range 2 {
			if errs[i] == nil && string(got) == texts[i] {
				want = texts[i]
			}
		}
		if err != nil || string(got) != want || errs[0] != nil && errs[1] != nil {
			t.Errorf("the database has %d bytes, %.30q; %v; saves: %v", len(got), got, err, errs)
		}
		forget(t, server)
	}
}

// save reads a database, and replaces it.
func save(ctx context.Context, j *job, database, text string) error {
	c, err := j.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Quit()
	r, err := c.Retr(database)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, r)
	if err := r.Close(); err != nil {
		return err
	}
	if err != nil {
		return err
	}
	if err := c.Stor(database+".tmp", strings.NewReader(text)); err != nil {
		return err
	}
	if err := c.Delete(database); err != nil {
		return err
	}
	return c.Rename(database+".tmp", database)
}
