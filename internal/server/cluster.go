package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ftplockd/ftplockd/config"
	"github.com/ftplockd/ftplockd/internal/lock/etcd"
)

// cluster is the part of *etcd.Cluster that a server uses. Tests replace it.
type cluster interface {
	Campaign(ctx context.Context) (clusterLog, error)
	StandbyState() string
	Differing() []string
	SetSettings(map[string]string)
	Space(ctx context.Context) (etcd.Space, error)
	Overview(ctx context.Context) (etcd.Overview, error)
	Close() error
}

// clusterLog is the log of the active server of several.
type clusterLog interface {
	lockLog
	Generation() uint32
	Valid() error
	LeaseOver() bool
	Serve()
	LeaseLeft() time.Duration
	Resign(ctx context.Context) error
}

var _ clusterLog = (*etcd.Log)(nil)

// openCluster returns the connection to etcd. Tests replace it.
func openCluster(o etcd.Options) cluster { return elections{etcd.Open(o)} }

type elections struct{ *etcd.Cluster }

// Campaign implements cluster.
func (e elections) Campaign(ctx context.Context) (clusterLog, error) {
	t, err := e.Cluster.Campaign(ctx)
	if err != nil {
		return nil, err
	}
	return t, nil
}

// EtcdOptions returns the options of the configuration for etcd. It reads the files that the configuration names.
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
		line, _, _ := strings.Cut(string(text), "\n")
		if o.Password = strings.TrimSuffix(line, "\r"); o.Password == "" {
			return o, fmt.Errorf("etcd.password_file: %s: its first line is empty", e.PasswordFile)
		}
	}
	return o, nil
}

// etcdTLS returns the configuration of TLS for etcd. The next connection reads a renewed certificate.
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

// errOtherPrefix is the error of checkShared that only an administrator can end.
var errOtherPrefix = errors.New("shows that servers with another etcd.prefix use these files")

// checkShared returns an error if etcd.shared_state is missing, since a server without the mounted file system would serve an empty tree, if it
// is read-only, or if servers with another prefix use it.
func checkShared(c *config.Config) error {
	shared := c.Etcd.SharedState
	if shared == "" {
		return nil
	}
	marked, err := checkMarks(c)
	if err != nil {
		return err
	}
	if err := checkWritable(shared); err != nil {
		return fmt.Errorf("etcd.shared_state: this server cannot write to %s: %w", shared, err)
	}
	info, err := os.Stat(shared)
	if err != nil {
		return err
	}
	root, err := os.Stat(c.Root)
	if errors.Is(err, fs.ErrNotExist) && !marked {
		return nil // the first server makes it
	}
	if err != nil {
		return fmt.Errorf("root: %w; is its file system mounted? Make the directory once, by hand", err)
	}
	if device(info) != device(root) {
		return fmt.Errorf("etcd.shared_state: %s is on another file system than root %s: is each of them mounted? "+
			"If they differ, this server does not find unfinished uploads of other servers", shared, c.Root)
	}
	return nil
}

// checkMarks reads the names in etcd.shared_state. marked reports that a server with this configuration has served.
func checkMarks(c *config.Config) (marked bool, err error) {
	shared, own := c.Etcd.SharedState, prefixMark+url.PathEscape(c.Etcd.Prefix)
	entries, err := os.ReadDir(shared)
	if err != nil {
		return false, fmt.Errorf("etcd.shared_state: %w; is its file system mounted? Make the directory once, by hand", err)
	}
	for _, e := range entries {
		switch {
		case e.Name() == own:
			marked = true
		case strings.HasPrefix(e.Name(), prefixMark):
			return false, fmt.Errorf("etcd.shared_state: %s %w, and would be active beside this one; remove it if there are none",
				filepath.Join(shared, e.Name()), errOtherPrefix)
		}
	}
	return marked, nil
}

// prefixMark is the beginning of the name of an empty file in shared_state. The rest is the etcd.prefix of the servers that use the directory.
const prefixMark = "prefix-"

// sharedMark returns the path of the file of this configuration.
func sharedMark(c *config.Config) string {
	return filepath.Join(c.Etcd.SharedState, prefixMark+url.PathEscape(c.Etcd.Prefix))
}

// markShared calls checkShared and makes the file of prefixMark.
func markShared(c *config.Config) error {
	if err := checkShared(c); err != nil || c.Etcd.SharedState == "" {
		return err
	}
	mark := sharedMark(c)
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		return fmt.Errorf("etcd.shared_state: %w", err)
	}
	if _, err := checkMarks(c); err != nil { // another server has made its file at the same time
		return errors.Join(err, os.Remove(mark))
	}
	return nil
}

// self returns the description of this server for the other ones.
func (s *server) self() (etcd.Server, error) {
	name, err := os.Hostname()
	return etcd.Server{
		Name: name, Addresses: slices.Concat(s.config.Listen, s.config.TLS.ImplicitListen), Version: Version(), Since: time.Now().UTC(),
		Settings: sharedSettings(s.config, len(s.config.Accounts) == 0),
	}, err
}

// checkAccounts returns an error if each of several servers would generate a password of its own.
func checkAccounts(c *config.Config) error {
	if !c.Etcd.On() || len(c.Accounts) > 0 || os.Getenv(config.EnvPassword) != "" {
		return nil
	}
	return UsageError{errors.New("account: with [etcd] all servers need the same accounts: configure [[account]], or set " + config.EnvPassword)}
}
