package integration

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestServerScripts executes testdata/server, each script with a server of its own. A line is a command of package testscript, one of
// [scene.commands], or the line of a client and the server's reply:
//
//	a MKD /x => 257 *locked, token*      a reply; * stands for any text
//	a STOR /f <<< new => 226 *           an upload
//	a RETR /f => 226 * >>> new           a download and its content
//	a STOR /f <<< new ...                a command whose reply comes later; an upload is sent without its end
//	a => 226 *                           that reply; an upload ends before it
//
// Clients a, a2 and a3 use the first account, b and b2 use other, c uses newcomer (which only "configure" adds), and boss is an administrator. A client logs in at its first command.
//
// The file "config" is the configuration of the server. With "stepped" in its place, the clocks of the server are those of the script.
// If it contains DIRECTORIES, the script runs with "true" there and with "false".
func TestServerScripts(t *testing.T) {
	t.Parallel()
	for _, file := range serverScripts(t) {
		values := []string{""}
		if strings.Contains(document(t, "integration/"+file), "DIRECTORIES") {
			values = []string{"true", "false"}
		}
		for _, directories := range values {
			t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar")+directories, func(t *testing.T) {
				t.Parallel()
				p := &scene{directories: directories, clients: make(map[string]*actor)}
				testscript.RunT(single{t}, testscript.Params{
					Files: []string{file}, Cmds: p.commands(), RequireExplicitExec: true, Deadline: time.Now().Add(2 * time.Minute),
					Setup: func(e *testscript.Env) error { return p.setUp(t, e) },
				})
			})
		}
	}
}

func serverScripts(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/server/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts:", err)
	}
	return files
}

// scene has the server and the clients of a script.
type scene struct {
	*server
	clock       *clock // nil: that of the system
	directories string
	clients     map[string]*actor
}

// actor is a client of a script.
type actor struct {
	*session
	upload net.Conn // one that has begun
}

func (p *scene) setUp(t *testing.T, e *testscript.Env) error {
	config, err := os.ReadFile(filepath.Join(e.WorkDir, "config"))
	if err == nil {
		p.server = startServer(t, p.tables(config))
	} else if config, err = os.ReadFile(filepath.Join(e.WorkDir, "stepped")); err == nil {
		p.server, p.clock = startStepped(t, p.tables(config))
	}
	if err != nil {
		return err
	}
	for name, value := range map[string]string{
		"PATH": filepath.Dir(binary) + ":" + os.Getenv("PATH"), "GORACE": "atexit_sleep_ms=0", "STATE": p.state, "FILES": p.root, "CONFIG": p.config,
	} {
		e.Setenv(name, value)
	}
	return nil
}

func (p *scene) tables(config []byte) string {
	return strings.ReplaceAll(string(config), "DIRECTORIES", p.directories)
}

// commands returns the commands of scripts, beside those of package testscript.
func (p *scene) commands() map[string]func(*testscript.TestScript, bool, []string) {
	all := make(map[string]func(*testscript.TestScript, bool, []string))
	for _, name := range []string{"a", "a2", "a3", "b", "b2", "c", "boss"} {
		all[name] = func(ts *testscript.TestScript, _ bool, words []string) { p.speak(ts, name, strings.Join(words, " ")) }
	}
	for usage, run := range map[string]func(*testscript.TestScript, []string){
		// The server takes the tables of a file, which precede those that each test has, and reads them as an operator wishes.
		"configure FILE command|signal|start [ACCOUNT]": func(ts *testscript.TestScript, args []string) {
			tables := p.tables([]byte(ts.ReadFile(args[0])))
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
			default:
				p.start()
			}
		},
		"server kill|stop|start|exited": func(_ *testscript.TestScript, args []string) {
			map[string]func(){"kill": p.kill, "stop": p.server.stop, "start": p.start, "exited": p.stopped}[args[0]]()
			clear(p.clients)
			if p.clock != nil {
				p.clock.restarted()
			}
		},
		"terminate": func(*testscript.TestScript, []string) { p.server.signal(syscall.SIGTERM) },
		// pass returns after the reaper has ended what is due. step changes the clocks only.
		"pass DURATION": func(ts *testscript.TestScript, args []string) { p.clock.pass(duration(ts, args[0])) },
		"step WALL BOOT": func(ts *testscript.TestScript, args []string) {
			p.clock.step(duration(ts, args[0]), duration(ts, args[1]))
		},
		"log COUNT TEXT": func(ts *testscript.TestScript, args []string) {
			n, err := strconv.Atoi(args[0])
			ts.Check(err)
			p.log.Await(p.t, strings.Join(args[1:], " "), n)
		},
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
		"grace LOCK":         func(_ *testscript.TestScript, args []string) { p.inGrace(p.as("b").session, args[0]) },
		"waiting LOCK":       func(_ *testscript.TestScript, args []string) { p.awaitQueue(p.t, args[0], 1) },
		"ended LOCK":         func(_ *testscript.TestScript, args []string) { p.awaitEnd(p.t, args[0]) },
		"break LOCK":         func(_ *testscript.TestScript, args []string) { p.as("boss").Breaks(args[0]) },
		"write FILE CONTENT": func(_ *testscript.TestScript, args []string) { p.write(args[0], args[1]) },
		"file FILE CONTENT":  func(_ *testscript.TestScript, args []string) { p.wantFile(p.t, args[0], args[1]) },
		// unfinished checks how many uploads on disk are not published.
		"unfinished COUNT": func(ts *testscript.TestScript, args []string) {
			if left := p.unfinished(); fmt.Sprint(len(left)) != args[0] {
				ts.Fatalf("unfinished: %v", left)
			}
		},
		"kick CLIENT": func(_ *testscript.TestScript, args []string) {
			p.command("kick", p.sessions(map[string]string{"a": account, "b": "other"}[args[0]])[0])
		},
		"close CLIENT": func(_ *testscript.TestScript, args []string) {
			p.as(args[0]).Conn.Close()
			delete(p.clients, args[0])
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

func duration(ts *testscript.TestScript, text string) time.Duration {
	d, err := time.ParseDuration(text)
	ts.Check(err)
	return d
}

// as returns the client of that name.
func (p *scene) as(name string) *actor {
	if p.clients[name] == nil {
		accounts := map[string]string{"a": account, "b": "other", "c": "newcomer", "boss": "boss"}
		p.clients[name] = &actor{session: p.session(accounts[strings.TrimRight(name, "23")])}
	}
	return p.clients[name]
}

// speak executes the line of a client.
func (p *scene) speak(ts *testscript.TestScript, name, line string) {
	c := p.as(name)
	sent, want, now := strings.Cut(" "+line, " => ")
	if !now {
		sent, now = strings.CutSuffix(sent, " ...")
		if now = !now; now {
			ts.Fatalf("%s has neither => nor ...", line)
		}
	}
	want, wantContent, _ := strings.Cut(want, " >>> ")
	command, content, uploads := strings.Cut(strings.TrimPrefix(sent, " "), " <<< ")
	downloads := regexp.MustCompile("^(RETR|LIST|NLST|MLSD)( |$)").MatchString(command)
	command = strings.NewReplacer(`\r`, "\r", `\n`, "\n").Replace(command)
	var got, gotContent string
	switch {
	case command == "":
		if c.upload != nil {
			c.upload.Close()
			c.upload = nil
		}
		r, err := c.ReadReply()
		ts.Check(err)
		got = r.String()
	case uploads && !now:
		c.upload = c.begin(command)
		_, err := io.WriteString(c.upload, content)
		ts.Check(err)
		return
	case !now:
		c.says(command)
		return
	case uploads:
		got = c.put(command, content)
	case downloads:
		got = c.transfer(command, func(data net.Conn) {
			content, err := io.ReadAll(data)
			ts.Check(err)
			gotContent = string(content)
		}, new([]byte))
	default:
		got = c.ask(command)
	}
	if !fits(want, got) || !fits(wantContent, gotContent) {
		ts.Fatalf("%q\nwant %q\nof %q\nwant %q", got, want, gotContent, wantContent)
	}
}

// fits reports whether a text matches a pattern, in which * stands for any text.
func fits(pattern, text string) bool {
	pattern = strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*")
	return regexp.MustCompile("(?s)^" + pattern + "$").MatchString(text)
}
