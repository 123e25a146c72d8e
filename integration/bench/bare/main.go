// Command bare is ftpserverlib with nothing around it: afero's OsFs below a directory, one account. It is what
// ftplockd is compared with by integration/bench, and nothing to serve files with.
//
//	bare DIR
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

	ftpserver "github.com/fclairamb/ftpserverlib"
	"github.com/spf13/afero"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bare:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 2 {
		return errors.New("usage: bare DIR")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := ftpserver.NewFtpServer(&driver{l, afero.NewBasePathFs(afero.NewOsFs(), os.Args[1])})
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

// driver is ftpserver.MainDriver, and the Fs that each client gets.
type driver struct {
	listener net.Listener
	tree     afero.Fs
}

func (d *driver) GetSettings() (*ftpserver.Settings, error) {
	return &ftpserver.Settings{Listener: d.listener}, nil
}
func (*driver) ClientConnected(ftpserver.ClientContext) (string, error) { return "bare", nil }
func (*driver) ClientDisconnected(ftpserver.ClientContext)              {}
func (*driver) GetTLSConfig() (*tls.Config, error)                      { return nil, errors.New("no TLS") }

func (d *driver) AuthUser(ftpserver.ClientContext, string, string) (ftpserver.ClientDriver, error) {
	return d.tree, nil
}
