package integration

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// exampleEnv tells every example where the server is.
func (s *server) exampleEnv() []string {
	host, port := split(s.v4)
	return []string{"FTP_HOST=" + host, "FTP_PORT=" + port, "FTP_USER=" + account, "FTP_PASSWORD=" + password}
}

// exampleFile is a file of examples/.
func exampleFile(t testing.TB, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "examples", name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// exampleRules are the lock rules that an example's README recommends.
func exampleRules(t testing.TB, example string) string {
	t.Helper()
	all := blocks(t, "examples/"+example+"/README.md")
	i := slices.IndexFunc(all, func(b block) bool { return b.kind == "toml" })
	if i < 0 {
		t.Fatalf("%s/README.md recommends no rules", example)
	}
	return all[i].text
}

// exampleCommand prepares a program that works on this server, in a process group of its own.
func (s *server) exampleCommand(t testing.TB, line ...string) *exec.Cmd {
	t.Helper()
	cmd := command(t, line[0], line[1:]...)
	cmd.SysProcAttr = tied(true)
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Env = append(cmd.Env, s.exampleEnv()...)
	return cmd
}

// killHolder starts a worker, which is to die while it has the lock, then runs the others and kills it
// when so many of them wait. It returns when all others have ended.
func (n *notes) killHolder(s *server, lockName string, victim *exec.Cmd, queue int, afterwards func(), others ...func()) {
	n.t.Helper()
	p := started(n.t, victim)
	harness.Await(n.t, "the first one has the lock", func() bool { return len(n.lines()) > 0 })
	var all sync.WaitGroup
	defer all.Wait()
	for _, other := range others {
		all.Go(other)
	}
	s.awaitQueue(n.t, lockName, queue)
	if got := n.lines(); len(got) != 1 || got[0] != fmt.Sprint("begin ", victim.Process.Pid) {
		n.t.Errorf("while %d has the lock: %q", victim.Process.Pid, got)
	}
	n.kill(p)
	afterwards()
}

// awaitQueue returns when at least so many wait for a lock.
func (s *server) awaitQueue(t testing.TB, lockName string, n int) {
	t.Helper()
	c := s.session("boss")
	defer c.Conn.Close()
	harness.Await(t, fmt.Sprintf("%d wait for %s", n, lockName), func() bool {
		r, err := c.Try("SITE LOCK INFO " + lockName)
		if err != nil {
			t.Fatal(err)
		}
		var waiting int
		for line := range strings.Lines(r.Text) {
			if _, err := fmt.Sscanf(line, " %d in the queue", &waiting); err == nil {
				break
			}
		}
		return waiting >= n
	})
}

// wantFree checks that nobody holds a lock.
func (s *server) wantFree(t testing.TB, names ...string) {
	t.Helper()
	c := s.session("boss")
	defer c.Conn.Close()
	for _, name := range names {
		c.Want(211, "SITE LOCK INFO "+name, " type=free;")
	}
}

// worker returns a run of a worker that must succeed and whose output goes into the log.
func (n *notes) worker(cmd *exec.Cmd) func() {
	n.t.Helper()
	cmd.Stdout = n.open()
	return func() {
		if r := finish(n.t, cmd); r.status != 0 || r.out != "" {
			n.t.Errorf("%v: exit status %d: %s", cmd.Args, r.status, r.out)
		}
	}
}

// countsRight has an example's program, which takes how often to count and how long that takes, count while one of eight is killed.
func countsRight(t *testing.T, example, lockName string, program ...string) {
	t.Helper()
	s := startServer(t, "[files]\ndurable = false\n"+exampleRules(t, example))
	log := newNotes(t)
	times := count(3, 50)
	victim := s.exampleCommand(t, append(slices.Clone(program), "1", "60")...)
	victim.Stdout = log.open()
	var others []func()
	for range 7 {
		others = append(others, log.worker(s.exampleCommand(t, append(slices.Clone(program), fmt.Sprint(times), "0.01")...)))
	}
	log.killHolder(s, lockName, victim, len(others), func() {}, others...)
	log.check(1 + len(others)*times)
	if got := s.read("counter.txt"); got != fmt.Sprintln(len(others)*times) {
		t.Errorf("the counter is %q", got)
	}
	s.wantFree(t, lockName)
}

// TestExampleScripts executes the scripts in testdata/examples. They have the settings that all examples read, the directory $EXAMPLES, and $LOCK,
// which is /phone_lock for netlock.
func TestExampleScripts(t *testing.T) {
	t.Parallel()
	var files []string
	for _, name := range []string{"highlander", "locker", "lost", "mistakes", "netlock", "sorry"} {
		files = append(files, "testdata/examples/"+name+".txtar")
	}
	runScripts(t, files, func(p *scene) {
		p.errorsExpected = true // a script may break the network or the server
		p.pin()
	})
}

// feature is a program that shows a feature of an example.
type feature struct{ name, program string }

// features reads such programs, and the beginning of all of them.
func features(t testing.TB, name string) (beginning string, all []feature) {
	t.Helper()
	parts := strings.Split(document(t, "integration/testdata/examples/"+name+".txtar"), "\n-- ")
	for _, part := range parts[1:] {
		title, program, _ := strings.Cut(part, " --\n")
		if title == "beginning" {
			beginning = program + "\n"
			continue
		}
		all = append(all, feature{title, program})
	}
	return beginning, all
}

// TestPythonMultiLockFeatures executes the programs of multilock.txtar, each with a group of its own.
func TestPythonMultiLockFeatures(t *testing.T) {
	t.Parallel()
	harness.Need(t, "python3")
	s := startServer(t, "[ftp]\nidle_timeout = \"2s\"\n"+strings.Replace(exampleRules(t, "python-multilock"), `"/locks/*/*.done"`, `"/locks/*/{*.done,kept}"`, 1))
	s.showFeatures(t, "multilock", func(string) {}, "python3", "-c", "PROGRAM", filepath.Dir(exampleFile(t, "python-multilock/multilock.py")))
}

// TestPHPMutexFeatures executes the programs of mutex.txtar. The end of each has released its lock.
func TestPHPMutexFeatures(t *testing.T) {
	t.Parallel()
	harness.Need(t, "php")
	s := startServer(t, "[ftp]\nidle_timeout = \"2s\"\n[[lock]]\nmatch = \"/locks/**\"\nmax_age = \"1h\"\n")
	s.showFeatures(t, "mutex", func(name string) { s.wantFree(t, "/locks/"+name) }, "php", "-r", "PROGRAM", "--", exampleFile(t, "php-mutex/NamedMutex.php"))
}

// showFeatures runs the programs, in place of "PROGRAM" in the command line. They may print nothing. Each gets a name of its own.
func (s *server) showFeatures(t *testing.T, file string, afterwards func(name string), line ...string) {
	t.Helper()
	beginning, all := features(t, file)
	if len(all) < 9 {
		t.Errorf("%s has %d programs", file, len(all))
	}
	for i, f := range all {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			line := append(slices.Clone(line), fmt.Sprint(file, i))
			line[2] = beginning + f.program
			if r := finish(t, s.exampleCommand(t, line...)); r.status != 0 || r.out != "" {
				t.Errorf("exit status %d: %s", r.status, r.out)
			}
			afterwards(fmt.Sprint(file, i))
		})
	}
}

func TestPythonMultiLockCountsRightWhenAHolderIsKilled(t *testing.T) {
	t.Parallel()
	harness.Need(t, "python3")
	countsRight(t, "python-multilock", "/locks/main/counter", "python3", exampleFile(t, "python-multilock/worker.py"), "count")
}

func TestPHPMutexCountsRightWhenAHolderIsKilled(t *testing.T) {
	t.Parallel()
	harness.Need(t, "php")
	countsRight(t, "php-mutex", "/locks/counter", "php", exampleFile(t, "php-mutex/counter.php"))
}

func TestPythonMultiLockRunsAJobOnceThoughAWorkerDies(t *testing.T) {
	t.Parallel()
	harness.Need(t, "python3")
	s := startServer(t, exampleRules(t, "python-multilock"))
	worker := exampleFile(t, "python-multilock/worker.py")
	log := newNotes(t)
	victim := s.exampleCommand(t, "python3", worker, "once", "60")
	victim.Stdout = log.open()
	var others []func()
	for range 7 {
		cmd, to := s.exampleCommand(t, "python3", worker, "once", "0.1"), log.open()
		others = append(others, func() {
			if r := finish(t, cmd); r.status != 0 {
				t.Errorf("exit status %d: %s", r.status, r.out)
			} else if r.out != "done already\n" {
				if _, err := to.WriteString(r.out); err != nil {
					t.Error(err)
				}
			}
		})
	}
	log.killHolder(s, "/locks/main/report", victim, len(others), func() {}, others...)
	log.check(2)
	report := s.read("report.txt")
	if lines := log.lines(); len(lines) != 4 || report != "made by "+strings.TrimPrefix(lines[2], "begin ")+"\n" {
		t.Errorf("the report is %q, the log %q", report, lines)
	}
	if r := finish(t, s.exampleCommand(t, "python3", worker, "once")); r.out != "done already\n" {
		t.Errorf("a later worker: %d %s", r.status, r.out)
	}
	boss := s.session("boss")
	boss.Want(211, "SITE LOCK INFO /locks/main/report.done", "never expires")
	boss.Breaks("/locks/main/report.done")
	if r := finish(t, s.exampleCommand(t, "python3", worker, "once")); !strings.Contains(r.out, "end ") {
		t.Errorf("after an administrator broke the lock: %d %s", r.status, r.out)
	}
}

func TestPythonMultiLockProcessesCreateAndEndAGroup(t *testing.T) {
	t.Parallel()
	harness.Need(t, "python3")
	s := startServer(t, exampleRules(t, "python-multilock"))
	dir := filepath.Dir(exampleFile(t, "python-multilock/multilock.py"))
	beginning, _ := features(t, "multilock")
	program := beginning + `for n in range(int(sys.argv[3])):
    mine = lock('job%d' % os.getpid())
    assert mine.acquire(), mine.reason  # nobody else wants it
    assert mine.verify()
    assert mine.release(), mine.reason
    lock('any').wait(20)
`
	var all sync.WaitGroup
	for range 6 {
		cmd := s.exampleCommand(t, "python3", "-c", program, dir, "busy", fmt.Sprint(count(10, 300)))
		all.Go(func() {
			if r := finish(t, cmd); r.status != 0 || r.out != "" {
				t.Errorf("exit status %d: %s", r.status, r.out)
			}
		})
	}
	all.Wait()
}

// highlander is the name of the lock of visitors.cgi.
const highlander = "/locks/highlander"

// visitors prepares a run of the page, as a web server does.
func (s *server) visitors(t testing.TB, env ...string) *exec.Cmd {
	t.Helper()
	cmd := s.exampleCommand(t, exampleFile(t, "shell-highlander/visitors.cgi"))
	cmd.Env = append(cmd.Env, env...)
	return cmd
}

// Each page makes several short connections, so a lock of a dead page ends only by its age.
func TestShellHighlanderCountsRightWhenAHolderIsKilled(t *testing.T) {
	t.Parallel()
	harness.Need(t, "curl")
	s, clock := startStepped(t, "[files]\ndurable = false\n"+exampleRules(t, "shell-highlander"))
	log := newNotes(t)
	times := count(3, 50)
	victim := s.visitors(t, "WORK=60")
	victim.Stderr = log.open()
	var others []func()
	for range 7 {
		errors := log.open()
		others = append(others, func() {
			for done, sorry := 0, 0; done < times; {
				cmd := s.visitors(t, "WORK=0.01")
				cmd.Stderr = errors
				switch r := finish(t, cmd); {
				case r.status == 0 && strings.HasPrefix(r.out, "Status: 200 OK\n"):
					done++
				case sorry < 5 && strings.HasPrefix(r.out, "Status: 503 ") && strings.Contains(r.out, "@127.0.0.1 is at work"):
					sorry++ // on a very busy machine
				default:
					t.Errorf("exit status %d: %s", r.status, r.out)
					return
				}
			}
		})
	}
	log.killHolder(s, highlander, victim, len(others), func() { clock.pass(time.Minute) }, others...)
	log.check(1 + len(others)*times)
	if got := s.read("visitors.txt"); got != fmt.Sprintln(len(others)*times) {
		t.Errorf("the counter is %q", got)
	}
	s.wantFree(t, highlander)
}
