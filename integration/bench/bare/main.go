//go:build linux

// Command bare is ftpserverlib with little around it: files below a directory, and locks in a map. integration/bench
// compares ftplockd with it. It is nothing to serve files with.
//
//	bare DIR CERTIFICATE KEY
//
// It listens on a free port of 127.0.0.1, prints the address on a line, and serves until it is killed.
package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"

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
	if len(args) != 3 {
		return errors.New("usage: bare DIR CERTIFICATE KEY")
	}
	pair, err := tls.LoadX509KeyPair(args[1], args[2])
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := ftpserver.NewFtpServer(&driver{
		listener: l,
		tree:     &tree{Fs: afero.NewBasePathFs(afero.NewOsFs(), args[0]), root: args[0], held: make(map[string]struct{})},
		tls:      &tls.Config{Certificates: []tls.Certificate{pair}},
	})
	server.Logger = slog.New(slog.DiscardHandler)
	fmt.Println(l.Addr())
	return server.ListenAndServe()
}

// driver is ftpserver.MainDriver. All clients get the same tree.
type driver struct {
	listener net.Listener
	tree     *tree
	tls      *tls.Config
}

func (d *driver) GetSettings() (*ftpserver.Settings, error) {
	return &ftpserver.Settings{
		Listener: d.listener, PassiveTransferPortRange: ports{}, IdleTimeout: -1, ActiveTransferPortNon20: true,
	}, nil
}

func (*driver) ClientConnected(ftpserver.ClientContext) (string, error) { return "bare", nil }
func (*driver) ClientDisconnected(ftpserver.ClientContext)              {}
func (d *driver) GetTLSConfig() (*tls.Config, error)                    { return d.tls, nil }

func (d *driver) AuthUser(ftpserver.ClientContext, string, string) (ftpserver.ClientDriver, error) {
	return d.tree, nil
}

// ports gives passive ports from the range that the other servers have, too. It is cheaper than the library's own range.
type ports struct{}

// FetchNext implements ftpserver.PasvPortGetter.
func (ports) FetchNext() (exposed, listened int, ok bool) {
	port := peers.FirstPort + rand.IntN(peers.LastPort-peers.FirstPort+1)
	return port, port, true
}

// NumberAttempts implements ftpserver.PasvPortGetter.
func (ports) NumberAttempts() int { return 10 }

// tree is files below a directory of this machine, but locks below /locks are in a map.
type tree struct {
	afero.Fs
	root string

	mu   sync.Mutex
	held map[string]struct{}
}

func isLock(name string) bool { return strings.HasPrefix(name, "/locks/") }

// Mkdir acquires a lock, or makes a directory.
func (t *tree) Mkdir(name string, mode fs.FileMode) error {
	if !isLock(name) {
		return t.Fs.Mkdir(name, mode)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, held := t.held[name]; held {
		return fs.ErrExist
	}
	t.held[name] = struct{}{}
	return nil
}

// RemoveDir releases a lock, or removes a directory. It implements ftpserver.ClientDriverExtensionRemoveDir.
func (t *tree) RemoveDir(name string) error {
	if !isLock(name) {
		return t.Remove(name)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, held := t.held[name]; !held {
		return fs.ErrNotExist
	}
	delete(t.held, name)
	return nil
}

// GetHandle opens a file of the system itself, so that the kernel may copy its bytes. It implements
// ftpserver.ClientDriverExtentionFileTransfer.
func (t *tree) GetHandle(name string, flags int, _ int64) (ftpserver.FileTransfer, error) {
	return os.OpenFile(filepath.Join(t.root, filepath.Clean("/"+name)), flags, 0o644)
}
