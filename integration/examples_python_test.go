package integration

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
)

func TestPythonMultiLockCountsRightWhenAHolderIsKilled(t *testing.T) {
	t.Parallel()
	harness.Need(t, "python3")
	countsRight(t, "python-multilock", "/locks/main/counter", "python3", exampleFile(t, "python-multilock/worker.py"), "count")
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

// pythonPrelude defines a function for locks in the test's own group, and two locks of one name.
const pythonPrelude = `
import os, sys, time
sys.path.insert(0, sys.argv[1])
import ftplib
from multilock import *
group = sys.argv[2]
def lock(name, **more): return MultiLock(name, group, **more)
def raises(kind, operation, *args):
    try: operation(*args)
    except kind as e: return str(e)
    raise SystemExit('no ' + kind.__name__)
def enter(lock):
    with lock: pass
a, b = lock('spam'), lock('spam')
`

// pythonFeatures has a program for each feature of MultiLock.
var pythonFeatures = []struct{ name, program string }{
	{"with takes the lock or says who has it, and gives it back", `
with a as same:
    assert same is a and a.verify()
    why = raises(MultiLockDenied, enter, b)
    assert 'held by phoneacc@127.0.0.1 for ' in why, why
    assert b.holder().startswith('held by phoneacc@127.0.0.1 for '), b.holder()
with b: pass
def fail():
    with a: 1/0
raises(ZeroDivisionError, fail)
assert b.holder() == ''
enter(b)`},
	{"acquire and release say whether they did", `
assert not a.release() and a.reason == 'not acquired'
assert a.acquire()
assert a.acquire(), 'it has it already'
assert not b.acquire() and 'held by phoneacc@' in b.reason, b.reason
assert not b.release()
assert a.release() and not a.release()
assert b.acquire()`},
	{"two objects of one process are not taken for each other", `
assert a.acquire() and a.verify() and not b.verify()
assert not b.acquire() and not b.release() and a.verify()`},
	{"the server ends what is older than maxage, and the one that had it is told", `
assert a.acquire(maxage=1)
first = a.token
assert b.acquire(timeout=10), b.reason
assert b.token > first > 0
assert not a.release() and 'taken away' in a.reason and 'older than 1s' in a.reason, a.reason
assert b.verify(), 'the late release has given back what is not its own'`},
	{"verify and the end of with tell that it was taken away", `
def late():
    with a:
        a.release(); a.acquire(maxage=3)
        assert a.verify()
        assert b.acquire(timeout=10)
        b.release()
why = raises(MultiLockLost, late)
assert 'older than 3s' in why, why
assert a.acquire(maxage=1) and b.acquire(timeout=10)
assert not a.verify() and b.verify()`},
	{"acquire with a timeout waits so long and no longer", `
assert a.acquire()
before = time.monotonic()
assert not b.acquire(timeout=1)
took = time.monotonic() - before
assert 1 <= took < 10, took`},
	{"members of a group run at the same time, and wait sees to all of them", `
members = [lock('job%d' % n) for n in range(5)]
for m in members: assert m.acquire(), m.reason
before = time.monotonic()
raises(MultiLockTimeout, lock('any').wait, 1)
assert 1 <= time.monotonic() - before < 10
raises(MultiLockTimeout, lock('any').wait, 0)
r, w = os.pipe()
if os.fork() == 0:
    dies = lock('dies')
    assert dies.acquire()
    os.read(r, 1)
    os._exit(0)  # which the server sees
watch = lock('dies')
while not watch.holder(): time.sleep(0.01)
for m in members: m.release()
raises(MultiLockTimeout, lock('any').wait, 0)
os.write(w, b'.')
lock('any').wait(20)
assert a._tokens(a.group) == set(), 'the group has ended'
lock('any').wait(0)  # there is no such group: it is complete
assert a.acquire(), 'the group is made again'`},
	{"the last member that is released ends the group", `
assert a.acquire()
other = lock('other')
assert other.acquire()
assert a.release() and a.reason, a.reason
assert a._tokens(a.group), 'it has another member'
assert other.release()
assert a._tokens(a.group) == set(), 'nobody is left in it'`},
	{"nohup outlives the object and is given back by another", `
def job(): assert lock('kept', nohup=True).acquire()
job()
assert not lock('kept').acquire() and not lock('kept').release()
other = lock('kept', nohup=True)
assert not other.acquire()
for _ in range(100):  # the server may not have noticed the end of the first connection
    if other.release(): break
    time.sleep(0.1)
else: raise AssertionError(other.reason)
assert lock('kept').acquire(timeout=10)`},
	{"the end of the object gives it back", `
assert a.acquire()
del a
assert b.acquire(timeout=10), b.reason`},
	{"a child process neither gives it back nor uses it", `
assert a.acquire()
child = os.fork()
if child == 0:
    try: a.release()
    except RuntimeError: del a
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert not b.acquire(), 'the child has given it back'
assert a.release(), a.reason`},
	{"a job that fails is not done, and the next one does it", `
def fail(): 1/0
raises(ZeroDivisionError, lambda: a.once(fail))
done = []
assert a.once(lambda: done.append(1)) and not b.once(lambda: done.append(2)) and done == [1]`},
	{"a connection that was idle for too long is made anew", `
assert a.acquire() and a.release()
a.wait(0)  # or the group's lock, which is anyone's, keeps the server from hanging up
time.sleep(3)
assert a.acquire() and a.release()`},
	{"settings come from the constructor, too", `
env, os.environ['FTP_HOST'] = os.environ['FTP_HOST'], 'unused.invalid'
c = lock('spam', host=env, port=os.environ['FTP_PORT'], user='other', password='secret')
assert c.acquire()
assert 'held by other@' in c.holder()
c.release()
raises(ftplib.error_perm, lock('spam', host=env, password='wrong').acquire)
raises(ValueError, lock, 'a/b')
raises(ValueError, lock, 'a\r\nRMD b')`},
}

func TestPythonMultiLockFeatures(t *testing.T) {
	t.Parallel()
	harness.Need(t, "python3")
	s := startServer(t, "[ftp]\nidle_timeout = \"2s\"\n"+strings.Replace(exampleRules(t, "python-multilock"), `"/locks/*/*.done"`, `"/locks/*/{*.done,kept}"`, 1))
	dir := filepath.Dir(exampleFile(t, "python-multilock/multilock.py"))
	for i, f := range pythonFeatures {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			group := fmt.Sprint("group", i)
			if r := finish(t, s.exampleCommand(t, "python3", "-c", pythonPrelude+f.program, dir, group)); r.status != 0 || r.out != "" {
				t.Errorf("exit status %d: %s", r.status, r.out)
			}
		})
	}
}

func TestPythonMultiLockProcessesCreateAndEndAGroup(t *testing.T) {
	t.Parallel()
	harness.Need(t, "python3")
	s := startServer(t, exampleRules(t, "python-multilock"))
	dir := filepath.Dir(exampleFile(t, "python-multilock/multilock.py"))
	program := pythonPrelude + `
for n in range(int(sys.argv[3])):
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
