package hostdir

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/files"
	"github.com/ftplockd/ftplockd/internal/lock"
)

type anything struct{}

func (anything) For(lock.Name) (lock.Rule, bool) { return lock.Rule{}, true }
func (anything) Roots() []lock.Name              { return nil }

// BenchmarkPairs has clients make and remove directories of locks in one parent, each over a connection of its own: with lanes, and with a call
// for each. Without connections the threads hardly meet in the kernel, and lanes show their cost only.
//
// Set TMPDIR to an ext4 with a journal, since without one mkdir searches for an inode that was not deleted lately:
//
//	truncate -s 1G /tmp/ext4 && mkfs.ext4 -q /tmp/ext4 && mkdir /tmp/mnt && mount -o loop /tmp/ext4 /tmp/mnt
//	TMPDIR=/tmp/mnt go test -run - -bench Pairs -benchtime 30000x ./internal/lock/hostdir
func BenchmarkPairs(b *testing.B) {
	for _, clients := range []int{1, 8, 64} {
		for _, way := range []string{"direct", "lanes"} {
			b.Run(fmt.Sprintf("clients=%d/%s", clients, way), func(b *testing.B) { benchmarkPairs(b, way == "lanes", clients) })
		}
	}
}

func benchmarkPairs(b *testing.B, lanes bool, clients int) {
	dir := b.TempDir()
	tree, err := files.Open(filepath.Join(dir, "files"), files.Options{State: filepath.Join(dir, "state")})
	check(b, err)
	defer tree.Close()
	d, err := Open(Options{FS: tree, Clock: lock.NewSystemClock(), Rules: anything{}, Held: func(lock.Name) bool { return false }, Directories: true})
	check(b, err)
	defer d.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(b, err)
	var serving, asking sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(b.N))
	for i := range clients {
		client, err := net.Dial("tcp", l.Addr().String())
		check(b, err)
		server, err := l.Accept()
		check(b, err)
		serving.Go(func() { check(b, serve(server, d, lanes)) })
		asking.Go(func() {
			defer client.Close()
			for replies := bufio.NewReader(client); left.Add(-1) >= 0; {
				for _, verb := range []string{"MKD", "RMD"} {
					fmt.Fprintf(client, "%s /lock-%d\r\n", verb, i)
					if reply, err := replies.ReadString('\n'); reply != "250 done\r\n" {
						b.Error(reply, err)
						return
					}
				}
			}
		})
	}
	before := cpu()
	b.ResetTimer()
	asking.Wait()
	b.StopTimer()
	b.ReportMetric(float64((cpu()-before).Microseconds())/float64(b.N), "cpu-µs/op")
	serving.Wait()
	check(b, l.Close())
}

// serve makes and removes a lock as a client asks for it.
func serve(client net.Conn, d *Disk, lanes bool) error {
	defer client.Close()
	h := lock.Hold{}
	for commands := bufio.NewScanner(client); commands.Scan(); {
		verb, name, _ := strings.Cut(commands.Text(), " ")
		h.Name = lock.Name(name)
		do := func(p *parent) (err error) {
			if verb == "MKD" {
				h.Directory, err = d.make(p, h.Name)
			} else {
				_, err = d.remove(p, h, lock.CauseRelease)
			}
			return err
		}
		var err error
		if lanes {
			err = d.changes.run(h.Name.Parent(), do)
		} else if p, oerr := d.open(h.Name.Parent()); oerr == nil {
			err = errors.Join(do(p), p.Close())
		}
		if _, werr := fmt.Fprint(client, "250 done\r\n"); err != nil || werr != nil {
			return errors.Join(err, werr)
		}
	}
	return nil
}

func check(b *testing.B, err error) {
	if err != nil {
		b.Helper()
		b.Error(err)
	}
}

// cpu returns the processor time of the process.
func cpu() time.Duration {
	var use syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &use)
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
