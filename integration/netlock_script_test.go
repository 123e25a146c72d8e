package integration

import (
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// TestNetlockScripts executes testdata/netlock, each script with a server of its own. The file "config" of a script is the server's configuration.
// $URL is phone_lock of the first account, $OTHER that of the second one, and $AT is the URL of the server for more locks.
func TestNetlockScripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/netlock/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts:", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			st := &scripted{programs: make(map[string]*program), sessions: make(map[string]*session)}
			testscript.RunT(single{t}, testscript.Params{
				Files: []string{file}, Cmds: st.commands(), RequireExplicitExec: true, Deadline: time.Now().Add(2 * time.Minute),
				Setup: func(e *testscript.Env) error { return st.setUp(t, e) },
				Condition: func(name string) (bool, error) { // [heeded]: a program that the test starts does not ignore SIGHUP
					return name == "heeded" && !signal.Ignored(syscall.SIGHUP), nil
				},
			})
		})
	}
}

// single runs one script as the test itself, so that its commands may use the test.
type single struct{ *testing.T }

func (s single) Run(_ string, f func(testscript.T)) { f(s) }
func (s single) Parallel()                          {}
func (s single) Verbose() bool                      { return testing.Verbose() }

// scripted has what a script started.
type scripted struct {
	*server
	programs map[string]*program
	sessions map[string]*session // by account
}

func (st *scripted) setUp(t *testing.T, e *testscript.Env) error {
	config, err := os.ReadFile(filepath.Join(e.WorkDir, "config"))
	if err != nil {
		config = []byte(longLived)
	}
	st.server = startServer(t, string(config))
	st.errorsExpected = true // a script may break the network or the server
	st.pin()
	at := "ftp://" + account + ":" + password + "@" + st.v4
	for name, value := range map[string]string{
		"PATH": filepath.Dir(netlock) + ":" + os.Getenv("PATH"), "HOME": e.WorkDir, "GORACE": "atexit_sleep_ms=0",
		"URL": st.lockURL("phone_lock"), "OTHER": st.urlOf("other", password, "phone_lock"), "AT": at, "SERVER": st.v4, "ACCOUNT": account, "PASSWORD": password, "FILES": st.root,
	} {
		e.Setenv(name, value)
	}
	return nil
}

// commands returns the commands of scripts, beside those of package testscript.
func (st *scripted) commands() map[string]func(*testscript.TestScript, bool, []string) {
	all := map[string]func(*testscript.TestScript, bool, []string){"status": harness.ExitStatus}
	for usage, run := range map[string]func(*testscript.TestScript, []string){
		"server kill|start|stop|continue": func(_ *testscript.TestScript, args []string) {
			map[string]func(){
				"kill": func() { st.kill(); clear(st.sessions) }, "start": st.start,
				"stop": func() { st.freeze() }, "continue": func() { st.server.signal(syscall.SIGCONT) },
			}[args[0]]()
		},
		// ftp sends a command in the session of an account and checks the reply.
		"ftp ACCOUNT CODE COMMAND [TEXT...]": func(ts *testscript.TestScript, args []string) {
			code, err := strconv.Atoi(args[1])
			ts.Check(err)
			st.of(args[0]).Want(code, args[2], args[3:]...)
		},
		"break LOCK": func(_ *testscript.TestScript, args []string) { st.session("boss").Breaks(args[0]) },
		// waiting returns when a client waits for the lock. free fails if the lock is held now, or with "soon" if it does not become free.
		"waiting LOCK": func(_ *testscript.TestScript, args []string) { st.of("boss").awaitWaiting(args[0], 1) },
		"free LOCK [soon]": func(_ *testscript.TestScript, args []string) {
			st.of("boss").wantFree(args[0], time.Duration(len(args)-1)*patience)
		},

		// launch starts a program; the other commands read and write its output and input.
		"launch NAME PROGRAM [ARGUMENT...]": func(ts *testscript.TestScript, args []string) {
			cmd := caller(st.t, strings.Replace(args[1], "netlock", netlock, 1), ts.Getenv("URL"), args[2:]...)
			cmd.Dir, cmd.Stderr = ts.MkAbs("."), new(strings.Builder)
			st.programs[args[0]] = launch(st.t, cmd)
		},
		"says NAME REGEXP": func(ts *testscript.TestScript, args []string) {
			p := st.programs[args[0]]
			if line := p.line(); !regexp.MustCompile("^(?:" + args[1] + ")$").MatchString(line) {
				ts.Fatalf("%s says %q; it complains %q", args[0], line, p.cmd.Stderr)
			}
		},
		"send NAME LINE": func(ts *testscript.TestScript, args []string) {
			_, err := st.programs[args[0]].to.Write([]byte(args[1] + "\n"))
			ts.Check(err)
		},
		"dot NAME": func(ts *testscript.TestScript, args []string) {
			if dot, err := st.programs[args[0]].from.ReadByte(); dot != '.' {
				ts.Fatalf("%s says %q, %v, want a dot", args[0], dot, err)
			}
		},
		"close NAME": func(_ *testscript.TestScript, args []string) { st.programs[args[0]].to.Close() },
		"signal NAME NUMBER": func(ts *testscript.TestScript, args []string) {
			number, err := strconv.Atoi(args[1])
			ts.Check(err)
			st.programs[args[0]].signal(st.t, syscall.Signal(number))
		},
		// gone returns when all processes that a program started have ended, without another line.
		"gone NAME": func(_ *testscript.TestScript, args []string) { st.programs[args[0]].ends(st.t, args[0]) },
		// ended waits for the end of a program and checks its status and its standard error: empty, or one line of netlock that matches.
		"ended NAME STATUS[|STATUS] [REGEXP]": func(ts *testscript.TestScript, args []string) {
			p := st.programs[args[0]]
			status, said := strconv.Itoa(p.exit(st.t)), p.cmd.Stderr.(*strings.Builder).String()
			lines := regexp.MustCompile("(?m)^netlock: .*$").FindAllString(said, -1)
			ok := slices.Contains(strings.Split(args[1], "|"), status)
			if len(args) == 2 {
				ok = ok && said == ""
			} else {
				ok = ok && len(lines) == 1 && regexp.MustCompile(args[2]).MatchString(lines[0])
			}
			if !ok {
				ts.Fatalf("%s ended with status %s and %q", args[0], status, said)
			}
		},
	} {
		words := strings.Fields(usage)
		least := len(words)
		if strings.HasPrefix(words[least-1], "[") {
			least--
		}
		all[words[0]] = func(ts *testscript.TestScript, neg bool, args []string) {
			if neg || len(args) < least-1 {
				ts.Fatalf("usage: %s", usage)
			}
			run(ts, args)
		}
	}
	return all
}

// of returns the session of an account, which lasts for the script.
func (st *scripted) of(name string) *session {
	s, ok := st.sessions[name]
	if !ok {
		s = st.session(name)
		st.sessions[name] = s
	}
	return s
}
