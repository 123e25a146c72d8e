// Command bare is ftpserverlib with nothing around it: afero's OsFs below a directory, one account. It is what
// ftplockd is compared with by integration/bench, and nothing to serve files with.
//
//	bare DIR [CERTIFICATE KEY]
//
// It listens on a free port of 127.0.0.1, prints the address on a line, and ends when its standard input does.
package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync/atomic"

	ftpserver "github.com/fclairamb/ftpserverlib"
	"github.com/spf13/afero"

	"github.com/ftplockd/ftplockd/integration/peers"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bare:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 && len(args) != 3 {
		return errors.New("usage: bare DIR [CERTIFICATE KEY]")
	}
	d := &driver{tree: afero.NewBasePathFs(afero.NewOsFs(), args[0])}
	if len(args) == 3 {
		pair, err := tls.LoadX509KeyPair(args[1], args[2])
		if err != nil {
			return err
		}
		d.tls = &tls.Config{Certificates: []tls.Certificate{pair}}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	d.listener = l
	server := ftpserver.NewFtpServer(d)
	server.Logger = slog.New(slog.DiscardHandler)
	fmt.Println(l.Addr())
	served := make(chan error, 1)
	go func() { served <- server.ListenAndServe() }()
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	if err := server.Stop(); err != nil {
		return err
	}
	return <-served
}

// driver is ftpserver.MainDriver, and keeps the Fs that each client gets.
type driver struct {
	listener net.Listener
	tree     afero.Fs
	tls      *tls.Config // nil: none
	ports    ports
}

// GetSettings asks for the passive ports that the peers have, too: the kernel, if the choice is its own, gives none that was
// used in the last minute, and has soon given all.
func (d *driver) GetSettings() (*ftpserver.Settings, error) {
	return &ftpserver.Settings{Listener: d.listener, PassiveTransferPortRange: &d.ports}, nil
}

// ports gives one passive port after the other. The library's own range draws random numbers for each, ten at a time.
type ports struct{ last atomic.Uint32 }

// FetchNext implements ftpserver.PasvPortGetter.
func (p *ports) FetchNext() (exposed, listened int, ok bool) {
	port := peers.FirstPort + int(p.last.Add(1)%(peers.LastPort-peers.FirstPort+1))
	return port, port, true
}

// NumberAttempts implements ftpserver.PasvPortGetter.
func (*ports) NumberAttempts() int { return 1 }

func (*driver) ClientConnected(ftpserver.ClientContext) (string, error) { return "bare", nil }
func (*driver) ClientDisconnected(ftpserver.ClientContext)              {}

func (d *driver) GetTLSConfig() (*tls.Config, error) {
	if d.tls == nil {
		return nil, errors.New("no TLS")
	}
	return d.tls, nil
}

func (d *driver) AuthUser(ftpserver.ClientContext, string, string) (ftpserver.ClientDriver, error) {
	return d.tree, nil
}
