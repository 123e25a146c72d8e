package server

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ftplockd/ftplockd/config"
	"github.com/ftplockd/ftplockd/internal/lock/etcd"
)

// cluster is what a server sees of etcd and of the other servers. Package etcd says what its methods promise.
type cluster interface {
	Campaign(ctx context.Context) (clusterLog, error)
	Leader() (etcd.Server, bool)
	Trouble() string
	Space(ctx context.Context) (etcd.Space, error)
	Close() error
}

// clusterLog is the log of a server for as long as it is the active one.
type clusterLog interface {
	lockLog
	Generation() uint32
	Valid() error
	Resign(ctx context.Context) error
}

var _ clusterLog = (*etcd.Log)(nil)

// reachCluster is how etcd is reached: openCluster, but for tests.
type reachCluster func(context.Context, etcd.Options) (cluster, error)

// openCluster reaches etcd.
func openCluster(ctx context.Context, o etcd.Options) (cluster, error) {
	c, err := etcd.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	return elections{c}, nil
}

type elections struct{ *etcd.Cluster }

// Campaign implements cluster.
func (e elections) Campaign(ctx context.Context) (clusterLog, error) {
	t, err := e.Cluster.Campaign(ctx)
	if err != nil {
		return nil, err
	}
	return t, nil
}

// etcdOptions are what the configuration says of etcd. It reads the files that are named there.
func EtcdOptions(c *config.Config, clock clock, log *slog.Logger) (etcd.Options, error) {
	e := &c.Etcd
	o := etcd.Options{
		Endpoints: e.Endpoints, Prefix: e.Prefix, TTL: e.TTL.Duration,
		Margin: cmp.Or(e.Margin.Duration, e.TTL.Duration/5), RequestTimeout: e.RequestTimeout.Duration,
		User: e.User, Clock: clock, BootID: clock.BootID(), Log: log, HistoryAge: days(e.HistoryDays), HistorySize: e.HistorySize.Bytes,
	}
	var err error
	if e.TLS() {
		if o.TLS, err = etcdTLS(e); err != nil {
			return o, err
		}
	}
	if e.PasswordFile != "" {
		text, err := os.ReadFile(e.PasswordFile)
		if err != nil {
			return o, fmt.Errorf("etcd.password_file: %w", err)
		}
		if o.Password, _, _ = strings.Cut(string(text), "\n"); strings.TrimSuffix(o.Password, "\r") == "" {
			return o, fmt.Errorf("etcd.password_file: %s: its first line is empty", e.PasswordFile)
		}
		o.Password = strings.TrimSuffix(o.Password, "\r")
	}
	return o, nil
}

// etcdTLS is how etcd is reached by TLS. A certificate that is renewed is read again with the next connection.
func etcdTLS(e *config.Etcd) (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if e.CA != "" {
		text, err := os.ReadFile(e.CA)
		if err != nil {
			return nil, fmt.Errorf("etcd.ca: %w", err)
		}
		if t.RootCAs = x509.NewCertPool(); !t.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("etcd.ca: %s: has no certificate in PEM", e.CA)
		}
	}
	if e.Certificate != "" {
		load := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(e.Certificate, e.Key)
			return &pair, err
		}
		if _, err := load(nil); err != nil {
			return nil, fmt.Errorf("etcd.certificate %s, etcd.key %s: %w", e.Certificate, e.Key, err)
		}
		t.GetClientCertificate = load
	}
	return t, nil
}

// checkShared makes sure that what all servers share is there: without it, a tree whose mount is missing would be served as an empty one.
func checkShared(c *config.Config) error {
	if c.Etcd.SharedState == "" {
		return nil
	}
	info, err := os.Stat(c.Etcd.SharedState)
	if err == nil && !info.IsDir() {
		err = &fs.PathError{Op: "stat", Path: c.Etcd.SharedState, Err: syscall.ENOTDIR}
	}
	if err != nil {
		return fmt.Errorf("etcd.shared_state: %w; is its file system mounted? The directory is made once, by you", err)
	}
	entries, err := os.ReadDir(c.Etcd.SharedState)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if escaped, ok := strings.CutPrefix(e.Name(), prefixMark); ok && escaped != url.PathEscape(c.Etcd.Prefix) {
			return fmt.Errorf("etcd.shared_state: %s says that servers with another etcd.prefix use these files, and would be active beside this one; "+
				"remove it if there are none", filepath.Join(c.Etcd.SharedState, e.Name()))
		}
	}
	root, err := os.Stat(c.Root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it is made, in a directory that may be anywhere
	}
	if err != nil {
		return err
	}
	if device(info) != device(root) {
		return fmt.Errorf("etcd.shared_state: %s is on another file system than root %s: is each of them mounted? "+
			"Where they differ, unfinished uploads of other servers are not seen", c.Etcd.SharedState, c.Root)
	}
	return nil
}

// prefixMark is what the name of an empty file in shared_state begins with, the rest of which is the prefix of the servers that use it.
const prefixMark = "prefix-"

// claimShared is checkShared, and makes that file.
func claimShared(c *config.Config) error {
	if err := checkShared(c); err != nil || c.Etcd.SharedState == "" {
		return err
	}
	mark := filepath.Join(c.Etcd.SharedState, prefixMark+url.PathEscape(c.Etcd.Prefix))
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		return fmt.Errorf("etcd.shared_state: %w", err)
	}
	if err := checkShared(c); err != nil { // another one was as fast
		return errors.Join(err, os.Remove(mark))
	}
	return nil
}

// self is what the other servers are told of this one.
func (s *server) self() (etcd.Server, error) {
	name, err := os.Hostname()
	self := etcd.Server{Name: name, Version: Version(), Rules: rulesHash(s.config), Since: time.Now().UTC()}
	for _, address := range slices.Concat(s.config.Listen, s.config.TLS.ImplicitListen) {
		self.Addresses = append(self.Addresses, reached(address, s.config.Etcd.Endpoints[0]))
	}
	return self, err
}

// reached returns the address at which others reach this machine, if it listens on all of its addresses: the one from which it reaches
// etcd. Nothing is sent for that.
func reached(listen, endpoint string) string {
	host, port, err := net.SplitHostPort(listen)
	u, uerr := url.Parse(endpoint)
	if ip, ierr := netip.ParseAddr(host); err != nil || uerr != nil || host != "" && (ierr != nil || !ip.IsUnspecified()) {
		return listen
	}
	conn, err := net.DialTimeout("udp", u.Host, time.Second)
	if err != nil {
		return listen
	}
	defer conn.Close()
	host, _, _ = net.SplitHostPort(conn.LocalAddr().String())
	return net.JoinHostPort(host, port)
}

// rulesHash tells rules from others.
func rulesHash(c *config.Config) string {
	text, err := json.Marshal(RulesOf(c))
	if err != nil {
		panic(err) // rules are plain values
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))[:12]
}

// checkAccounts refuses several servers each of which would make a password of its own.
func checkAccounts(c *config.Config) error {
	if !c.Etcd.On() || len(c.Accounts) > 0 || os.Getenv(config.EnvPassword) != "" {
		return nil
	}
	return UsageError{errors.New("account: with [etcd] all servers need the same accounts: configure [[account]], or set " + config.EnvPassword)}
}
