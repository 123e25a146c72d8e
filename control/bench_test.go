package control_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	ftpserver "github.com/fclairamb/ftpserverlib"
	"github.com/ftplockd/ftplockd/control"
	"github.com/spf13/afero"
)

// BenchmarkPairs measures two commands with their replies on loopback, the clients
// included: against a server that echoes lines, against the library alone, through
// control to the library, and answered by control.
func BenchmarkPairs(b *testing.B) {
	for _, conns := range []int{1, 8, 64} {
		for _, kind := range []string{"echo", "library", "passed", "answered"} {
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
						if _, err := r.ReadSlice('\n'); err != nil {
							b.Fatal(err)
						}
						_, _ = io.WriteString(nc, "USER u\r\n")
						_, _ = r.ReadSlice('\n')
						_, _ = io.WriteString(nc, "PASS u\r\n")
						_, _ = r.ReadSlice('\n')
					}
					ready.Add(1)
					done.Go(func() {
						ready.Done()
						<-begin
						noop, pwd := []byte("NOOP\r\n"), []byte("PWD\r\n")
						for left.Add(-1) >= 0 {
							for _, line := range [][]byte{noop, pwd} {
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

func benchServer(b *testing.B, kind string) string {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	addr := l.Addr().String()
	if kind == "echo" {
		go func() {
			for {
				nc, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer nc.Close()
					r := bufio.NewReader(nc)
					for {
						line, err := r.ReadSlice('\n')
						if err != nil {
							return
						}
						_, _ = nc.Write(line)
					}
				}()
			}
		}()
		b.Cleanup(func() { _ = l.Close() })
		return addr
	}
	if kind != "library" {
		l = control.NewListener(control.Options{
			NewHandler: func(*control.Conn) control.Handler { return benchHandler(kind == "answered") },
		}, control.Source{Listener: l})
	}
	lib := ftpserver.NewFtpServer(benchDriver{l})
	lib.Logger = slog.New(slog.DiscardHandler)
	go func() { _ = lib.ListenAndServe() }()
	b.Cleanup(func() { _ = l.Close() })
	return addr
}

type benchDriver struct{ l net.Listener }

func (d benchDriver) GetSettings() (*ftpserver.Settings, error) {
	return &ftpserver.Settings{Listener: d.l, IdleTimeout: -1}, nil
}
func (benchDriver) ClientConnected(ftpserver.ClientContext) (string, error) { return "ready", nil }
func (benchDriver) ClientDisconnected(ftpserver.ClientContext)              {}
func (benchDriver) GetTLSConfig() (*tls.Config, error)                      { return nil, errors.New("none") }
func (benchDriver) AuthUser(ftpserver.ClientContext, string, string) (ftpserver.ClientDriver, error) {
	return afero.NewMemMapFs(), nil
}

type benchHandler bool

func (h benchHandler) Command(_ *control.Conn, cmd control.Command) control.Decision {
	if h {
		switch cmd.Verb {
		case "NOOP":
			return control.Answer(control.Reply{Code: 200, Text: "OK"})
		case "PWD":
			return control.Answer(control.Reply{Code: 257, Text: `"/" is the current directory`})
		}
	}
	return control.Pass(cmd.Line)
}
func (benchHandler) Reply(*control.Conn, int, []byte) ([]byte, bool) { return nil, false }
func (benchHandler) Ended(*control.Conn, control.Reason)             {}
