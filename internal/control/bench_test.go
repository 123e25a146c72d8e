package control_test

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	ftpserver "github.com/fclairamb/ftpserverlib"

	"github.com/ftplockd/ftplockd/internal/control"
)

// BenchmarkPairs measures two commands with their replies on loopback, the clients
// included: against a server that echoes lines, against the library alone, and
// through control to the library.
func BenchmarkPairs(b *testing.B) {
	for _, conns := range []int{1, 8, 64} {
		for _, kind := range []string{"echo", "library", "control"} {
			b.Run(fmt.Sprintf("%s/%d", kind, conns), func(b *testing.B) {
				addr := benchServer(b, kind)
				var left atomic.Int64
				left.Store(int64(b.N))
				var ready, done sync.WaitGroup
				begin := make(chan struct{})
				for range conns {
					nc, err := net.Dial("tcp", addr)
					if err != nil {
						b.Fatal(err)
					}
					defer nc.Close()
					r := bufio.NewReader(nc)
					if kind != "echo" {
						_, _ = r.ReadSlice('\n')
					}
					ready.Add(1)
					done.Go(func() {
						ready.Done()
						<-begin
						lines := [][]byte{[]byte("NOOP\r\n"), []byte("SYST\r\n")}
						for left.Add(-1) >= 0 {
							for _, line := range lines {
								if _, err := nc.Write(line); err != nil {
									b.Error(err)
									return
								}
								if _, err := r.ReadSlice('\n'); err != nil {
									b.Error(err)
									return
								}
							}
						}
					})
				}
				ready.Wait()
				b.ReportAllocs()
				b.ResetTimer()
				close(begin)
				done.Wait()
				b.StopTimer()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
			})
		}
	}
}

// benchDriver lets the library listen itself, or behind control.
type benchDriver struct {
	driver
	listener net.Listener
}

func (d benchDriver) GetSettings() (*ftpserver.Settings, error) {
	return &ftpserver.Settings{Listener: d.listener, IdleTimeout: -1}, nil
}

func benchServer(b *testing.B, kind string) string {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	addr := l.Addr().String()
	switch kind {
	case "echo":
		go echo(l)
		b.Cleanup(func() { _ = l.Close() })
		return addr
	case "control":
		l = control.NewListener(control.Options{
			NewHandler: func(c *control.Conn) control.Handler { return newHandler(nil, c) },
		}, control.Source{Listener: l})
	}
	library := ftpserver.NewFtpServer(benchDriver{listener: l})
	library.Logger = slog.New(slog.DiscardHandler)
	go func() { _ = library.ListenAndServe() }()
	b.Cleanup(func() { _ = l.Close() })
	return addr
}

func echo(l net.Listener) {
	for {
		nc, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer nc.Close()
			_, _ = io.Copy(nc, nc)
		}()
	}
}
