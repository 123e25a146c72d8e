package driver

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// clientSteps, in the environment, makes this test binary be a client; see TestBeAClient.
const clientSteps = "FTPLOCKD_TEST_CLIENT"

// program is a client that is a process of its own.
type program struct {
	t   *testing.T
	cmd *exec.Cmd
	out *bufio.Reader
}

// program starts a client that logs in and then takes the steps, separated by commas. Nothing leads to it but its connections.
func (s *server) program(steps string) *program {
	s.t.Helper()
	self, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	p := &program{t: s.t, cmd: exec.Command(self, "-test.run=^TestBeAClient$")}
	p.cmd.Env = append(os.Environ(), clientSteps+"="+s.addr+","+steps, "GODEBUG=asyncpreemptoff=1") // what works does so all the time
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	p.out = bufio.NewReader(out)
	s.t.Cleanup(p.kill)
	return p
}

func (p *program) kill() {
	_ = p.cmd.Process.Kill() // or it has ended
	_ = p.cmd.Wait()
}

// stopped waits until the client is at a stop.
func (p *program) stopped() {
	p.t.Helper()
	for {
		line, err := p.out.ReadString('\n')
		if err != nil {
			p.t.Fatal("the client has ended")
		}
		if line == "stop\n" {
			return
		}
	}
}

// goOn ends a stop.
func (p *program) goOn() { _ = p.cmd.Process.Signal(syscall.SIGUSR1) }

// TestBeAClient is no test: it is the client.
func TestBeAClient(t *testing.T) {
	steps := strings.Split(os.Getenv(clientSteps), ",")
	if len(steps) < 2 {
		t.Skip("this is not its process")
	}
	c := childClient{goOn: make(chan os.Signal, 1)}
	signal.Notify(c.goOn, syscall.SIGUSR1)
	err := c.login(steps[0])
	for _, step := range steps[1:] {
		if err == nil {
			word, rest, _ := strings.Cut(step, " ")
			err = c.step(word, rest)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "client:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

type childClient struct {
	goOn    chan os.Signal
	control net.Conn
	text    *textproto.Conn
	data    net.Conn
	kept    []any
	threads []ownThread
}

func (c *childClient) login(addr string) (err error) {
	if c.control, err = net.Dial("tcp", addr); err != nil {
		return err
	}
	c.text = textproto.NewConn(c.control)
	if err := c.answer(220); err != nil {
		return err
	}
	return c.say(331, "USER phoneacc", 230, "PASS "+password, 200, "TYPE I")
}

func (c *childClient) answer(code int) error {
	_, _, err := c.text.ReadResponse(code)
	return err
}

// say takes pairs of the code that is to come and what is said.
func (c *childClient) say(pairs ...any) error {
	for i := 0; i < len(pairs); i += 2 {
		if err := c.text.PrintfLine("%s", pairs[i+1]); err != nil {
			return err
		}
		if err := c.answer(pairs[i].(int)); err != nil {
			return err
		}
	}
	return nil
}

func (c *childClient) step(word, rest string) error {
	switch word {
	case "stop": // until the test says that it goes on
		fmt.Println("stop")
		<-c.goOn
	case "half": // of an upload
		return c.half(rest)
	case "close": // the data connection
		return c.data.Close()
	case "done":
		return c.answer(226)
	case "spin": // does something else
		d, err := time.ParseDuration(rest)
		for end := time.Now().Add(d); time.Now().Before(end); {
		}
		return err
	case "abort":
		return c.say(426, "ABOR")
	case "hangup":
		return c.control.Close()
	case "kill":
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "move": // the control connection to another descriptor
		f, err := c.control.(*net.TCPConn).File()
		c.kept = append(c.kept, f)
		c.control.Close()
		return err
	case "replace": // and something else has its descriptor
		return c.replace()
	case "fork": // a child that ends with this process
		cat := exec.Command("cat")
		in, err := cat.StdinPipe()
		c.kept = append(c.kept, in)
		if err != nil {
			return err
		}
		return cat.Start()
	case "threads": // so many more that sleep
		n, err := strconv.Atoi(rest)
		for range n {
			c.thread(func(end <-chan struct{}) { sleepUntil(end) })
		}
		return err
	case "work": // in another thread
		c.thread(func(<-chan struct{}) {
			for { // without a place at which the runtime could have it make room
				_, _, _ = syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0)
			}
		})
	case "swap": // one of them for another, so that there are as many as before
		ends := c.threads[0]
		if ends.tid == os.Getpid() { // Go never ends the first thread of a process
			ends = c.threads[1]
		}
		close(ends.end)
		for there := true; there; time.Sleep(time.Millisecond) {
			_, err := os.Stat("/proc/self/task/" + strconv.Itoa(ends.tid))
			there = err == nil
		}
		c.thread(func(end <-chan struct{}) { sleepUntil(end) })
	case "child": // that ends
		return exec.Command("true").Run()
	case "ignore": // children, see wait(2)
		signal.Ignore(syscall.SIGCHLD)
	case "hold":
		return c.hold(rest)
	}
	return nil
}

// ownThread is one that ends with what it does.
type ownThread struct {
	tid int
	end chan struct{}
}

func (c *childClient) thread(do func(end <-chan struct{})) {
	end, tid := make(chan struct{}), make(chan int)
	go func() {
		runtime.LockOSThread()
		tid <- syscall.Gettid()
		do(end)
	}()
	c.threads = append(c.threads, ownThread{<-tid, end})
}

// sleepUntil sleeps with its thread.
func sleepUntil(end <-chan struct{}) {
	for {
		select {
		case <-end:
			return
		default:
			nap(20 * time.Millisecond)
		}
	}
}

func (c *childClient) replace() error {
	f, err := c.control.(*net.TCPConn).File()
	c.kept = append(c.kept, f)
	if err != nil {
		return err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	raw, err := c.control.(*net.TCPConn).SyscallConn()
	if err != nil {
		return err
	}
	return errors.Join(raw.Control(func(fd uintptr) { err = syscall.Dup3(int(null.Fd()), int(fd), 0) }), err)
}

func (c *childClient) half(name string) error {
	if err := c.text.PrintfLine("EPSV"); err != nil {
		return err
	}
	_, text, err := c.text.ReadResponse(229)
	if err != nil {
		return err
	}
	host, _, _ := net.SplitHostPort(c.control.RemoteAddr().String())
	if c.data, err = net.Dial("tcp", net.JoinHostPort(host, strconv.Itoa(toldPort(229, text)))); err != nil {
		return err
	}
	if err := c.say(150, "STOR "+name); err != nil {
		return err
	}
	_, err = io.WriteString(c.data, "half of it")
	return err
}

// hold keeps something open besides.
func (c *childClient) hold(what string) (err error) {
	var kept any
	switch what {
	case "many files":
		var all []*os.File
		for range maxDescriptors {
			f, err := os.Open(os.Args[0])
			if err != nil {
				return err
			}
			all = append(all, f)
		}
		kept = all
	case "a child with the connection":
		cat := exec.Command("cat")
		f, ferr := c.control.(*net.TCPConn).File()
		in, _ := cat.StdinPipe()
		cat.ExtraFiles = []*os.File{f}
		kept = in
		err = errors.Join(ferr, cat.Start(), f.Close())
	case "a file":
		kept, err = os.Open(os.Args[0])
	case "another session":
		kept, err = net.Dial("tcp", c.control.RemoteAddr().String())
	case "a listener":
		kept, err = net.Listen("tcp", "127.0.0.1:0")
	case "a client": // connected, as that of a relay is
		var l, from net.Conn
		server, lerr := net.Listen("tcp", "127.0.0.1:0")
		if lerr != nil {
			return lerr
		}
		if from, err = net.Dial("tcp", server.Addr().String()); err == nil {
			l, err = server.Accept()
		}
		server.Close()
		kept = []net.Conn{l, from}
	case "a local socket":
		var pair [2]int
		pair, err = syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
		kept = pair
	case "a pipe":
		var r, w *os.File
		r, w, err = os.Pipe()
		cat := exec.Command("cat") // writes to it
		in, _ := cat.StdinPipe()
		cat.Stdout = w
		kept = []any{r, in}
		if err == nil {
			err = cat.Start()
		}
		w.Close()
	case "a terminal's other end":
		kept, err = os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	}
	c.kept = append(c.kept, kept)
	return err
}
