package server

import (
	"context"
	"log/slog"
	"math"

	"github.com/ftplockd/ftplockd/config"
	"github.com/ftplockd/ftplockd/driver"
	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/job"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// settings returns the settings of the driver.
func (s *server) settings(c *config.Config) driver.Settings {
	return driver.Settings{
		Accounts: accounts{c, s.passwords}, FTP: c.FTP, TLS: c.TLS, Files: c.Files, Locks: c.Locks, PublicAddress: s.public.get,
	}
}

// accounts implements driver.Accounts with the accounts of the configuration.
type accounts struct {
	config    *config.Config
	passwords *config.Verifier
}

// Authenticate implements driver.Accounts.
func (a accounts) Authenticate(ctx context.Context, t config.Attempt) (config.Account, error) {
	return a.passwords.Login(ctx, a.config.Accounts, t)
}

// RulesOf returns the lock rules of a configuration.
func RulesOf(c *config.Config) []lock.Rule {
	rules := make([]lock.Rule, len(c.Rules))
	for i, r := range c.Rules {
		rules[i] = lock.Rule{
			Match: r.Match, MaxAge: r.MaxAge.Duration, MaxIdle: r.MaxIdle.Duration, OnDisconnect: lock.Disconnect(r.OnDisconnect),
			Grace: r.Grace.Duration, LockDelay: r.LockDelay.Duration, Release: lock.ReleasePolicy(r.Release), AllowCwd: r.AllowCwd,
			Protection: &lock.Protection{
				Paths: r.Protects, WriteAs: lock.WritePolicy(r.WriteAs), Automatic: r.Automatic.On(), Advises: r.Automatic == config.AutomaticReport,
			},
			Contention: &lock.Contention{
				Wait: r.Wait.Duration, Shared: r.Shared, ReadersShare: c.Locks.ReadersShare, Limit: r.Limit, Members: lock.MemberPolicy(r.Members),
			},
		}
	}
	return rules
}

// jobRulesOf returns the rules of a configuration that make locks automatic.
func jobRulesOf(c *config.Config, locks *lock.Rules) *job.Rules {
	var rules []job.Rule
	for _, r := range c.Rules {
		if r.Automatic.On() {
			rules = append(rules, job.Rule{
				Match: r.Match, Wait: r.Wait.Duration, Turn: r.Turn.Duration, Session: r.Job == config.JobSession,
				Report: r.Automatic == config.AutomaticReport,
			})
		}
	}
	return job.NewRules(locks, rules)
}

const (
	// ownFiles is how many open files the server needs for itself: the page and its listeners, the log, the disk.
	ownFiles = pageConnections + 64
	// sessionFiles is how many open files a session with a transfer has: two connections, a port, the file and its directory.
	sessionFiles = 5
	// fewConnections is the number of connections below which the limit of open files deserves a warning.
	fewConnections = 1000
)

// affordable returns how many connections the process can serve with so many open files. It can then still grant, release and end locks.
func affordable(files uint64) int {
	own := min(ownFiles, files/2)
	return int(max(1, min((files-own)/sessionFiles, math.MaxInt32)))
}

// warnOfFiles logs that the limit of open files allows few connections.
func warnOfFiles(log *slog.Logger, c *config.Config) {
	if limit := limits(c).MaxConnections; limit < min(c.FTP.MaxConnections, fewConnections) {
		log.Warn("the limit of open files allows few connections: raise it (LimitNOFILE, ulimit -n)",
			"open_files", openFiles(), "connections", limit, "max_connections", c.FTP.MaxConnections)
	}
}

// limits returns the limits of the control connections. The limit of open files may allow fewer connections than the configuration.
func limits(c *config.Config) control.Limits {
	limit := c.FTP.MaxConnections
	if files := openFiles(); files > 0 && limit > 0 {
		limit = min(limit, affordable(files))
	}
	return control.Limits{
		MaxConnections: limit, MaxPerAddress: c.FTP.MaxConnectionsPerAddress,
		IdleTimeout: c.FTP.IdleTimeout.Duration, LoginTimeout: c.FTP.LoginTimeout.Duration, UserTimeout: c.FTP.UserTimeout.Duration,
	}
}
