package integration

import (
	"fmt"
	"os"
	"os/exec"
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

// TestServerScripts executes testdata/server, and TestNetlockScripts testdata/netlock. Each script has a server of its own. A line is a command of
// package testscript, one of [scene.commands], or the name of a client and a line of [harness.Session.Play], such as "a MKD /x => 257 *".
//
// Clients a, a2 and a3 use the first account, b and b2 use other, c uses newcomer (which only "configure" adds), boss is an administrator,
// stranger does not log in, and six is the first account over IPv6. A client connects at its first command.
//
// The file "config" is the configuration of the server. With "stepped" in its place, the clocks of the server are those of the script; with
// neither, the locks are longLived. If it contains DIRECTORIES, the script runs with "true" there and with "false".
func TestServerScripts(t *testing.T) {
	t.Parallel()
	runScripts(t, scripts(t, "server"), func(*scene) {})
}

// TestNetlockScripts: $URL is phone_lock of the first account, $OTHER that of the second one, and $AT is the URL of the server for more locks.
func TestNetlockScripts(t *testing.T) {
	t.Parallel()
	runScripts(t, scripts(t, "netlock"), func(p *scene) {
		p.errorsExpected = true // a script may break the network or the server
		p.pin()
	})
}

func scripts(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/" + dir + "/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts:", err)
	}
	return files
}

// runScripts executes scripts, each after prepare has been called with its started server.
func runScripts(t *testing.T, files []string, prepare func(*scene)) {
	t.Helper()
	for _, file := range files {
		values := []string{""}
		if strings.Contains(document(t, "integration/"+file), "DIRECTORIES") {
			values = []string{"true", "false"}
		}
		for _, directories := range values {
			t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar")+directories, func(t *testing.T) {
				t.Parallel()
				p := &scene{directories: directories, clients: make(map[string]*session), programs: make(map[string]*program)}
				testscript.RunT(single{t}, testscript.Params{
					Files: []string{file}, Cmds: p.commands(), RequireExplicitExec: true, Deadline: time.Now().Add(2 * time.Minute),
					Setup: func(e *testscript.Env) error { return p.setUp(t, e, prepare) },
					Condition: func(name string) (bool, error) {
						switch name {
						case "heeded": // a program that the test starts does not ignore SIGHUP
							return !signal.Ignored(syscall.SIGHUP), nil
						case "directories":
							return directories == "true", nil
						}
						return false, fmt.Errorf("unknown condition %q", name)
					},
				})
			})
		}
	}
}

// single runs one script as the test itself, so that its commands may use the test.
type single struct{ *testing.T }

func (s single) Run(_ string, f func(testscript.T)) { f(s) }
func (s single) Parallel()                          {}
func (s single) Verbose() bool                      { return testing.Verbose() }

// scene has the server, the clients and the programs of a script.
type scene struct {
	*server
	clock       *clock // nil: that of the system
	directories string
	clients     map[string]*session
	programs    map[string]*program
	terminal    *terminal
	vars        []string // the environment of the script at its start
}

func (p *scene) setUp(t *testing.T, e *testscript.Env, prepare func(*scene)) error {
	if config, err := os.ReadFile(filepath.Join(e.WorkDir, "stepped")); err == nil {
		p.server, p.clock = newStepped(t, p.tables(t, config, e.WorkDir))
	} else if config, err = os.ReadFile(filepath.Join(e.WorkDir, "config")); err == nil {
		p.server = newServer(t, p.tables(t, config, e.WorkDir))
	} else {
		p.server = newServer(t, longLived)
	}
	if flags, err := os.ReadFile(filepath.Join(e.WorkDir, "flags")); err == nil { // of the server's command line
		p.flags = strings.Fields(strings.ReplaceAll(string(flags), "WORK", e.WorkDir))
	}
	p.start()
	prepare(p)
	host, port := split(p.v4)
	_, port6 := split(p.v6)
	for name, value := range map[string]string{
		"PATH": filepath.Dir(binary) + ":" + os.Getenv("PATH"), "HOME": e.WorkDir, "GORACE": "atexit_sleep_ms=0",
		"STATE": p.state, "FILES": p.root, "CONFIG": p.config, "PAGE": strings.TrimSuffix(p.page, "/"),
		"SERVER": p.v4, "ACCOUNT": account, "PASSWORD": password,
		"URL": p.lockURL("phone_lock"), "OTHER": p.urlOf("other", password, "phone_lock"), "AT": "ftp://" + account + ":" + password + "@" + p.v4,
		"CERTIFICATE": filepath.Join(e.WorkDir, "cert.pem"), "EXAMPLES": exampleFile(t, "."), "TESTDATA": exampleFile(t, "../integration/testdata/examples"), "NETLOCK": netlock, "LOCK": p.lockURL("/phone_lock"),
		"PORT6": port6, "FTP_HOST": host, "FTP_PORT": port, "FTP_USER": account, "FTP_PASSWORD": password, "PYTHONDONTWRITEBYTECODE": "1",
	} {
		e.Setenv(name, value)
	}
	p.vars = e.Vars
	return nil
}

// tables replaces DIRECTORIES, WORK by the directory of the script, the line TLS by the keys of a certificate, and "RULES EXAMPLE" by the rules in
// the README of an example.
func (p *scene) tables(t testing.TB, config []byte, work string) string {
	text := regexp.MustCompile(`(?m)^(RULES|TLS)( .*)?$`).ReplaceAllStringFunc(string(config), func(line string) string {
		if line == "TLS" {
			return tlsTables(t, work)
		}
		return exampleRules(t, strings.TrimPrefix(line, "RULES "))
	})
	return strings.NewReplacer("DIRECTORIES", p.directories, "WORK", work).Replace(text)
}

// commands returns the commands of scripts, beside those of package testscript.
func (p *scene) commands() map[string]func(*testscript.TestScript, bool, []string) {
	all := map[string]func(*testscript.TestScript, bool, []string){"status": harness.ExitStatus}
	for _, name := range []string{"a", "a2", "a3", "b", "b2", "c", "boss", "stranger", "six"} {
		all[name] = func(ts *testscript.TestScript, _ bool, words []string) {
			ts.Check(p.as(name).Play(strings.Join(words, " ")))
		}
	}
	for usage, run := range map[string]func(*testscript.TestScript, []string){
		// namespaces skips the script if the test may not make namespaces.
		"namespaces": func(*testscript.TestScript, []string) {
			if out, err := exec.Command("unshare", "--mount", "--pid", "--fork", "true").CombinedOutput(); err != nil {
				harness.Missing(p.t, fmt.Sprintf("no namespaces: %v: %s", err, out))
			}
		},
		// need skips the script if a program is not installed.
		"need PROGRAM": func(_ *testscript.TestScript, args []string) { harness.Need(p.t, args...) },
		// The server takes the tables of a file, which precede those that each test has, and reads them as an operator wishes.
		"configure FILE command|signal|refused|start [ACCOUNT]": func(ts *testscript.TestScript, args []string) {
			tables := p.tables(p.t, []byte(ts.ReadFile(args[0])), ts.MkAbs("."))
			if p.clock != nil {
				tables = canary + tables
			}
			p.configure(tables, args[2:]...)
			switch args[1] {
			case "command":
				p.mustReload()
			case "signal":
				p.server.signal(syscall.SIGHUP)
				p.log.Await(p.t, "msg=reloaded", 1)
			case "refused":
				p.server.signal(syscall.SIGHUP)
			default:
				p.start()
			}
		},
		// freeze stops the process and leaves its connections open, like a network that loses everything; thaw continues it.
		"server kill|stop|start|exited|freeze|thaw": func(_ *testscript.TestScript, args []string) {
			map[string]func(){
				"kill": p.kill, "stop": p.server.stop, "start": p.start, "exited": p.stopped,
				"freeze": func() { p.freeze() }, "thaw": func() { p.server.signal(syscall.SIGCONT) },
			}[args[0]]()
			if args[0] == "freeze" || args[0] == "thaw" {
				return
			}
			clear(p.clients)
			if p.clock != nil {
				p.clock.restarted()
			}
		},
		"reload":    func(*testscript.TestScript, []string) { p.mustReload() },
		"terminate": func(*testscript.TestScript, []string) { p.server.signal(syscall.SIGTERM) },
		// pass moves the clocks, and returns when the reaper has ended all locks that are due. step only moves them. reboot moves the wall
		// clock and begins another boot.
		"pass DURATION": func(ts *testscript.TestScript, args []string) { p.clock.pass(duration(ts, args[0])) },
		"step WALL BOOT": func(ts *testscript.TestScript, args []string) {
			p.clock.step(duration(ts, args[0]), duration(ts, args[1]))
		},
		"reboot WALL": func(ts *testscript.TestScript, args []string) { p.clock.reboot(duration(ts, args[0])) },
		"log COUNT TEXT": func(ts *testscript.TestScript, args []string) {
			n, err := strconv.Atoi(args[0])
			ts.Check(err)
			p.log.Await(p.t, strings.Join(args[1:], " "), n)
		},
		"lognot TEXT": func(ts *testscript.TestScript, args []string) {
			if strings.Contains(p.log.String(), args[0]) {
				ts.Fatalf("the log has %q", args[0])
			}
		},
		"savelog FILE": func(ts *testscript.TestScript, args []string) {
			writeFile(p.t, ts.MkAbs(args[0]), []byte(p.log.String()))
		},
		// errors allows errors in the log.
		"errors": func(*testscript.TestScript, []string) { p.errorsExpected = true },
		"locks [NAME...]": func(ts *testscript.TestScript, args []string) {
			var held []string
			for _, l := range p.locks() {
				held = append(held, l.Name)
			}
			if fmt.Sprint(held) != fmt.Sprint(args) {
				ts.Fatalf("held: %v", held)
			}
		},
		"ages LOCK HELD LEFT": func(ts *testscript.TestScript, args []string) {
			p.as("b").wantAges(args[0], duration(ts, args[1]), duration(ts, args[2]))
		},
		"grace LOCK": func(_ *testscript.TestScript, args []string) { p.inGrace(p.as("b"), args[0]) },
		"waiting LOCK [COUNT]": func(ts *testscript.TestScript, args []string) {
			n, err := strconv.Atoi(append(args, "1")[1])
			ts.Check(err)
			p.awaitQueue(p.t, args[0], n)
		},
		// free fails if the lock is held now, or with "soon" if it does not become free.
		"free LOCK [soon]": func(_ *testscript.TestScript, args []string) {
			p.as("boss").wantFree(args[0], time.Duration(len(args)-1)*patience)
		},
		"over LOCK":          func(_ *testscript.TestScript, args []string) { p.awaitEnd(p.t, args[0]) },
		"break LOCK":         func(_ *testscript.TestScript, args []string) { p.as("boss").Breaks(args[0]) },
		"write FILE CONTENT": func(_ *testscript.TestScript, args []string) { p.write(args[0], args[1]) },
		"file FILE CONTENT":  func(_ *testscript.TestScript, args []string) { p.wantFile(p.t, args[0], args[1]) },
		// secure has a client use TLS for its control connection.
		"secure CLIENT": func(_ *testscript.TestScript, args []string) { p.as(args[0]).startTLS() },
		// unfinished checks how many uploads on disk are not published.
		"unfinished COUNT": func(ts *testscript.TestScript, args []string) {
			if left := p.unfinished(); fmt.Sprint(len(left)) != args[0] {
				ts.Fatalf("unfinished: %v", left)
			}
		},
		"kick CLIENT": func(_ *testscript.TestScript, args []string) {
			p.command("kick", p.sessions(map[string]string{"a": account, "b": "other"}[args[0]])[0])
		},

		// launch starts a program; the other commands read and write its output and input.
		"launch NAME PROGRAM [ARGUMENT...]": func(ts *testscript.TestScript, args []string) {
			cmd := caller(p.t, strings.Replace(args[1], "netlock", netlock, 1), ts.Getenv("URL"), args[2:]...)
			cmd.Dir, cmd.Env, cmd.Stderr = ts.MkAbs("."), p.vars, new(strings.Builder)
			p.programs[args[0]] = launch(p.t, cmd)
		},
		"says NAME REGEXP": func(ts *testscript.TestScript, args []string) {
			prog := p.programs[args[0]]
			if line := prog.line(); !regexp.MustCompile("^(?:" + args[1] + ")$").MatchString(line) {
				ts.Fatalf("%s writes %q; its errors: %q", args[0], line, prog.cmd.Stderr)
			}
		},
		"send NAME LINE": func(ts *testscript.TestScript, args []string) {
			_, err := p.programs[args[0]].to.Write([]byte(args[1] + "\n"))
			ts.Check(err)
		},
		"dot NAME": func(ts *testscript.TestScript, args []string) {
			if dot, err := p.programs[args[0]].from.ReadByte(); dot != '.' {
				ts.Fatalf("%s writes %q, %v, want a dot", args[0], dot, err)
			}
		},
		// terminal starts a program on a terminal of its own. types writes keys to it, and shows waits for a text on it.
		"terminal PROGRAM [ARGUMENT...]": func(ts *testscript.TestScript, args []string) {
			cmd := caller(p.t, strings.Replace(args[0], "netlock", netlock, 1), ts.Getenv("URL"), args[1:]...)
			cmd.Dir, cmd.Env = ts.MkAbs("."), append(slices.Clone(p.vars), "PS1=$ ", "ENV=")
			p.terminal = onTerminal(p.t, cmd)
		},
		"types KEYS": func(ts *testscript.TestScript, args []string) {
			ts.Check(p.terminal.types(harness.Unescape(args[0])))
		},
		"shows TEXT": func(_ *testscript.TestScript, args []string) {
			p.terminal.shown.Await(p.t, harness.Unescape(args[0]), 1)
		},
		// close closes the connection of a client, or the input of a program.
		"close NAME": func(_ *testscript.TestScript, args []string) {
			if prog := p.programs[args[0]]; prog != nil {
				prog.to.Close()
				return
			}
			p.as(args[0]).Conn.Close()
			delete(p.clients, args[0])
		},
		"signal NAME NUMBER": func(ts *testscript.TestScript, args []string) {
			number, err := strconv.Atoi(args[1])
			ts.Check(err)
			p.programs[args[0]].signal(p.t, syscall.Signal(number))
		},
		// gone returns when all processes that a program started have ended, without another line.
		"gone NAME": func(_ *testscript.TestScript, args []string) { p.programs[args[0]].ends(p.t, args[0]) },
		// ended waits for the end of a program and checks its status and its standard error: empty, or one line of netlock that matches.
		"ended NAME STATUS[|STATUS] [REGEXP]": func(ts *testscript.TestScript, args []string) {
			prog := p.programs[args[0]]
			status, errors := strconv.Itoa(prog.exit(p.t)), prog.cmd.Stderr.(*strings.Builder).String()
			lines := regexp.MustCompile("(?m)^netlock: .*$").FindAllString(errors, -1)
			ok := slices.Contains(strings.Split(args[1], "|"), status)
			if len(args) == 2 {
				ok = ok && errors == ""
			} else {
				ok = ok && len(lines) == 1 && regexp.MustCompile(args[2]).MatchString(lines[0])
			}
			if !ok {
				ts.Fatalf("%s ended with status %s and %q", args[0], status, errors)
			}
		},
		"failed NAME REGEXP": func(ts *testscript.TestScript, args []string) {
			prog := p.programs[args[0]]
			status, errors := prog.exit(p.t), prog.cmd.Stderr.(*strings.Builder).String()
			if status == 0 || !regexp.MustCompile(args[1]).MatchString(errors) {
				ts.Fatalf("%s ended with status %d and %q", args[0], status, errors)
			}
		},
		// oneline checks that the last program wrote one line, which has the text.
		"oneline TEXT": func(ts *testscript.TestScript, args []string) {
			if text := ts.ReadFile("stdout") + ts.ReadFile("stderr"); strings.Count(text, "\n") != 1 || !strings.Contains(text, args[0]) {
				ts.Fatalf("it wrote %q", text)
			}
		},
		// fails checks that netlock ends with a status, no output and one line of error, which has the text and no password.
		"fails STATUS TEXT ARGUMENT [ARGUMENT...]": func(ts *testscript.TestScript, args []string) {
			harness.ExitStatus(ts, false, append([]string{args[0], "netlock"}, args[2:]...))
			line := ts.ReadFile("stderr")
			if !strings.HasPrefix(line, "netlock: ") || strings.Count(line, "\n") != 1 || !strings.Contains(line, args[1]) || strings.Contains(line, password) || ts.ReadFile("stdout") != "" {
				ts.Fatalf("it writes %q and %q", ts.ReadFile("stdout"), line)
			}
		},
	} {
		words := strings.Fields(usage)
		least := len(words) - 1
		if strings.HasPrefix(words[least], "[") {
			least--
		}
		all[words[0]] = func(ts *testscript.TestScript, neg bool, args []string) {
			if neg || len(args) < least {
				ts.Fatalf("usage: %s", usage)
			}
			run(ts, args)
		}
	}
	return all
}

// awaitEnd returns after the lock has ended.
func (s *server) awaitEnd(t testing.TB, name string) {
	t.Helper()
	c := s.session("boss")
	defer c.Conn.Close()
	harness.Await(t, "the lock ends", func() bool {
		r, err := c.Try("SITE LOCK INFO " + name)
		return err == nil && !strings.Contains(r.Text, "type=lock;")
	})
}

func duration(ts *testscript.TestScript, text string) time.Duration {
	d, err := time.ParseDuration(text)
	ts.Check(err)
	return d
}

// as returns the client of that name.
func (p *scene) as(name string) *session {
	if p.clients[name] == nil {
		accounts := map[string]string{"a": account, "b": "other", "c": "newcomer", "boss": "boss"}
		switch name {
		case "stranger":
			p.clients[name] = p.stranger()
		case "six":
			c, err := login(p.v6, account)
			if err != nil {
				p.t.Fatal(err)
			}
			p.clients[name] = c.of(p.server)
		default:
			p.clients[name] = p.session(accounts[strings.TrimRight(name, "23")])
		}
	}
	return p.clients[name]
}
