package integration

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// wine is a Windows of its own, with netlock in it.
type wine struct {
	t       *testing.T
	prefix  string
	netlock string
}

func newWine(t *testing.T) *wine {
	t.Helper()
	harness.Need(t, "wine", "wineserver")
	w := &wine{t: t, prefix: filepath.Join(t.TempDir(), "prefix"), netlock: filepath.Join(t.TempDir(), "netlock.exe")}
	cmd := exec.Command("go", "build", "-o", w.netlock, "../cmd/netlock")
	cmd.Env = append(os.Environ(), "GOOS=windows", "GOARCH=amd64", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Mkdir(w.prefix, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.command("wineserver", "-k", "-w").Run() })
	for _, args := range [][]string{{"wineserver", "-p"}, {"wine", "wineboot", "-i"}} { // without output, which their children would keep open
		if err := w.command(args[0], args[1:]...).Run(); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
	}
	library := filepath.Join(w.prefix, "drive_c/windows/system32/bcryptprimitives.dll")
	if _, err := os.Stat(library); err != nil {
		harness.Need(t, "x86_64-w64-mingw32-gcc")
		mustRun(t, "x86_64-w64-mingw32-gcc", "-shared", "-o", library, "testdata/wine/bcryptprimitives.c", "-ladvapi32")
	}
	return w
}

func (w *wine) command(name string, args ...string) *exec.Cmd {
	cmd := command(w.t, name, args...)
	cmd.Env = append(cmd.Env, "WINEPREFIX="+w.prefix, "WINEDEBUG=-all", "DISPLAY=")
	return cmd
}

func (w *wine) run(args ...string) result {
	w.t.Helper()
	return finish(w.t, w.command("wine", append([]string{w.netlock}, args...)...))
}

// TestNetlockOnWindows runs the Windows build under wine.
func TestNetlockOnWindows(t *testing.T) {
	t.Parallel()
	w := newWine(t)
	s := startServer(t, longLived)
	url, other := s.lockURL("phone_lock"), s.session("other")
	want := func(what string, r result, status int, says string) {
		t.Helper()
		if r.status != status || !strings.Contains(r.out, says) {
			t.Errorf("%s: %+v, want %d and %q", what, r, status, says)
		}
	}
	want("a command", w.run(url, "cmd", "/c", "echo I have %NETLOCK_PATH%"), 0, "I have /phone_lock")
	want("its status", w.run(url, "-c", "exit 7"), 7, "")
	want("none", w.run(url, "no-such-program"), 127, "not found")

	other.Want(257, "MKD /phone_lock")
	want("held", w.run("-n", url, "cmd", "/c", "echo too early"), 75, "held by other@127.0.0.1")
	want("info", w.run("info", url), 0, "held by other@127.0.0.1")
	other.Want(250, "RMD /phone_lock")

	local := filepath.Join(t.TempDir(), "local")
	writeFile(t, local, []byte("anna\t1\r\n"))
	want("put", w.run("put", url, "Z:"+local, "phone.tsv"), 0, "")
	want("get", w.run("get", url, "phone.tsv", "Z:"+local+".back"), 0, "")
	wantFile(t, local+".back", "anna\t1\r\n")

	// The lock is broken: the whole job ends, with the children of the command.
	p := launch(t, w.command("wine", w.netlock, url, "cmd", "/c", "echo here& cmd /c ping -n 60 127.0.0.1 > nul"))
	p.says(t, "here\r")
	s.session("boss").Breaks("/phone_lock")
	p.ended(t, 79)

	// The reader closes the output.
	r, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := w.command("wine", w.netlock, url)
	cmd.Stdout = out
	holder := started(t, cmd)
	out.Close()
	if line, err := bufio.NewReader(r).ReadString('\n'); line != "OK\n" {
		t.Fatalf("it prints %q, %v", line, err)
	}
	other.Want(550, "MKD /phone_lock")
	r.Close()
	other.wantFree("/phone_lock", patience)
	holder.exit(t)
}
