//go:build linux

package cluster

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/etcdtest"
	"github.com/ftplockd/ftplockd/integration/harness"
)

// machine is a machine in namespaces: it has its own network, processes and host name. It sees the tree of this machine, and keeps its changes in
// memory. It ends with the test.
type machine struct {
	t    *testing.T
	name string
	init int // the process id of its first process
}

// becomeMachine is the script of its first process: $1 is the name, $2 the directory that all machines share.
const becomeMachine = `
set -eu
dir=$(mktemp -d)
mount -t tmpfs machine "$dir"
mkdir "$dir/changes" "$dir/work" "$dir/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$dir/changes,workdir=$dir/work" "$dir/root"
cd "$dir/root"
mount -t proc proc proc
mount --rbind /dev dev
for d in tmp run root var/log var/lib/apt/lists; do mount -t tmpfs tmpfs "$d"; done
mkdir -p srv/shared exchange
mount --bind "$2/shared" srv/shared
mount --bind "$2/exchange" exchange
cp "$2"/root/* root/
cp "$2"/bin/* usr/local/bin/
ln -sf true usr/bin/mandb # it takes longer than the rest of an installation
echo force-unsafe-io >etc/dpkg/dpkg.cfg.d/machine
hostname "$1"
ip link set lo up
echo ready
exec chroot . /bin/sh -c 'while :; do sleep 1; done'
`

// newMachine starts a machine with an address on the bridge.
func newMachine(t *testing.T, bridge, name, address, shared string) *machine {
	t.Helper()
	cmd := exec.Command("unshare", "--mount", "--uts", "--pid", "--net", "--fork", "--kill-child=KILL", "--propagation", "private", "sh", "-c", becomeMachine, "sh", name, shared)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	ready := make([]byte, 6)
	if _, err := out.Read(ready); err != nil {
		t.Fatalf("%s does not start: %v %s", name, err, &errs)
	}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, name: name}
	if m.init, err = strconv.Atoi(strings.TrimSpace(string(children))); err != nil {
		t.Fatal(err)
	}
	end := bridge + name
	command(t, "ip", "link", "add", end, "type", "veth", "peer", "name", "eth0", "netns", strconv.Itoa(m.init))
	command(t, "ip", "link", "set", end, "master", bridge, "up")
	if out, err := m.run("ip address add " + address + "/24 dev eth0; ip link set eth0 up"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return m
}

// run executes lines of a shell as root, until one fails.
func (m *machine) run(lines string) (string, error) {
	ctx, cancel := context.WithTimeout(m.t.Context(), patience)
	defer cancel()
	pid := strconv.Itoa(m.init)
	cmd := exec.CommandContext(ctx, "nsenter", "--target", pid, "--mount", "--uts", "--pid", "--net", "--root=/proc/"+pid+"/root", "--wd=/proc/"+pid+"/root/root",
		"env", "-i", "HOME=/root", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", "bash", "-euxo", "pipefail", "-c", lines)
	file, err := os.CreateTemp(m.t.TempDir(), "out") // a daemon would keep a pipe open
	if err != nil {
		return "", err
	}
	defer file.Close()
	cmd.Stdout, cmd.Stderr = file, file
	err = cmd.Run()
	text, rerr := os.ReadFile(file.Name())
	if rerr != nil {
		return "", rerr
	}
	return string(text), err
}

func command(t testing.TB, line ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), line[0], line[1:]...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v: %s", line, err, out)
	}
	return string(out)
}

// needNamespaces skips the test if this process cannot make machines.
func needNamespaces(t *testing.T) {
	t.Helper()
	harness.Need(t, "unshare", "nsenter", "ip", "openssl", "curl", "dpkg-deb", "apt-get", "python3", "setpriv", "iptables")
	out, err := exec.Command("unshare", "--mount", "--uts", "--pid", "--net", "--fork", "true").CombinedOutput()
	if err == nil {
		return
	}
	if os.Getenv("FTPLOCKD_REQUIRE_CLIENTS") == "1" {
		t.Fatalf("no namespaces: %v %s", err, out)
	}
	t.Skipf("no namespaces: %v %s", err, out)
}

// block matches a block of commands on a page. Its first line names the machines that run it.
var block = regexp.MustCompile("(?ms)^```sh\n# ([a-z][a-z\\d ]*)\n(.*?)^```\n")

// machineFiles makes the directory that the machines of a test share, with the package and stand-ins for systemctl and scp: see testdata/machine.
func machineFiles(t *testing.T) (shared string) {
	t.Helper()
	shared = t.TempDir()
	for _, dir := range []string{"shared", "exchange", "root", "bin"} {
		if err := os.Mkdir(filepath.Join(shared, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	command(t, "sh", "-c", "cp testdata/machine/* "+shared+"/bin/")
	file, err := builtPackage()
	if err != nil {
		t.Fatal(err)
	}
	command(t, "cp", filepath.Join("../..", file), filepath.Join(shared, "root", "ftplockd_1_amd64.deb"))
	return shared
}

// builtPackage builds the package once, in dist, and returns its file.
var builtPackage = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("sh", "-c", "cd ../.. && COMPRESSION=none packaging/deb").CombinedOutput()
	made := strings.Fields(string(out))
	if err != nil || len(made) == 0 {
		return "", fmt.Errorf("packaging/deb: %w: %s", err, out)
	}
	return strings.Trim(made[len(made)-1], "'."), nil
})

// TestTheClusterPage executes the commands of docs/cluster.md, one block after the other, on three machines. A client holds a lock while they replace
// certificates and passwords.
func TestTheClusterPage(t *testing.T) {
	t.Parallel()
	needNamespaces(t)
	shared := machineFiles(t)
	etcdtest.Archive(t, filepath.Join(shared, "root"))
	command(t, "sh", "-c", "dpkg-deb --fsys-tarfile "+shared+"/root/ftplockd_*.deb | tar -xO ./usr/bin/netlock >"+shared+"/bin/netlock && chmod +x "+shared+"/bin/netlock")
	page, err := os.ReadFile("../../docs/cluster.md")
	if err != nil {
		t.Fatal(err)
	}
	before := func(heading string) int { // the number of blocks before a heading
		text, _, found := bytes.Cut(page, []byte("\n### "+heading+"\n"))
		if !found {
			t.Fatalf("the page has no heading %s", heading)
		}
		return len(block.FindAll(text, -1))
	}
	begin, end := before("New certificates"), before("Backup and restore")
	execute(t, "cluster", 25, shared, []string{"m1", "m2", "m3"}, func(done int, machines map[string]*machine) {
		script := ""
		switch done {
		case begin:
			script = `NETLOCK_PASSWORD=drill SSL_CERT_FILE=/root/pki/ca.crt setsid netlock ftpes://job@locks.example/%2Flocks/held \
				sh -c 'echo $NETLOCK_TOKEN >/root/token; while :; do sleep 1; done' >/var/log/netlock.log 2>&1 &
				echo $! >/root/netlock.pid
				until [ -s /root/token ]; do sleep 0.1; done`
		case end:
			script = `kill $(cat /root/netlock.pid) # it fails if netlock has ended, as it does when the lock is lost
				until say 'MKD /locks/held'; do sleep 0.1; done` // netlock has released its lock
		default:
			return
		}
		if out, err := machines["m3"].run(script); err != nil {
			t.Fatalf("the holder of a lock: %v: %s", err, out)
		}
	})
}

// execute runs the blocks of a page of docs on machines with the names and the addresses 10.0.0.1, 10.0.0.2, ... The page must have
// the least number of blocks. execute calls after with the number of blocks done.
func execute(t *testing.T, name string, least int, shared string, names []string, after func(done int, machines map[string]*machine)) {
	t.Helper()
	page, err := os.ReadFile("../../docs/" + name + ".md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := block.FindAllSubmatch(page, -1)
	if n := bytes.Count(page, []byte("```sh\n")); n != len(blocks) || n < least {
		t.Fatalf("%d of %d blocks have a machine", len(blocks), n)
	}
	bridge := fmt.Sprintf("%.2s%d", name, rand.IntN(1e6)) // the kernel removes the links of an earlier run late
	command(t, "ip", "link", "add", bridge, "type", "bridge")
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", bridge).Run() })
	command(t, "ip", "link", "set", bridge, "up")
	machines := make(map[string]*machine)
	for i, name := range names {
		machines[name] = newMachine(t, bridge, name, fmt.Sprint("10.0.0.", i+1), shared)
	}
	begin := time.Now()
	for i, b := range blocks {
		for _, name := range strings.Fields(string(b[1])) {
			m := machines[name]
			out, err := m.run(string(b[2]))
			if err != nil {
				for _, each := range machines {
					logs, _ := each.run("tail -n 15 /var/log/*.log")
					t.Logf("%s: %s", each.name, logs)
				}
				t.Fatalf("%s: %v: the commands\n%s\nprinted\n%s", name, err, b[2], out)
			}
			first, _, _ := strings.Cut(string(b[2]), "\n")
			t.Logf("%.1fs %s: %s ...", time.Since(begin).Seconds(), name, first)
			for i, name := range names { // copy the files that scp has sent
				from := fmt.Sprint("/exchange/10.0.0.", i+1)
				if out, err := machines[name].run("if [ -d " + from + " ]; then cp -r " + from + "/. / && rm -r " + from + "; fi"); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
		}
		if after != nil {
			after(i+1, machines)
		}
	}
}
