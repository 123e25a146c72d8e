// Package metrics counts the events of the server for Prometheus.
//
// Its type is [Metrics]. Its Sink counts events; the gauges call the functions of [State] when metrics are read.
//
// Guarantees: the values of each label are bounded. No label contains a name, an account or an address.
//
// Start reading at [New].
package metrics

import (
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ftplockd/ftplockd/internal/event"
)

// State has the functions that return the values of gauges. They must return soon. A nil function leaves its gauge out.
type State struct {
	Held        func() int
	Waiting     func() int
	Sessions    func() int
	Transfers   func() int
	JournalSize func() int64  // in bytes, history included
	Dropped     func() uint64 // events, and lines of the log, that were lost
	Cluster     func() string // which of States a server of several is in
	States      []string
	Term        func() int                            // the number of terms of all servers so far
	Standbys    func() int                            // servers that stand by and are ready to serve
	Lease       func() time.Duration                  // until the end of the lease of the active server
	Differing   func() int                            // settings in which a standby differs from the active server
	Suspended   func() time.Duration                  // how long it has been suspended, or 0
	Database    func() (size, quota int64, full bool) // of etcd
	Expires     map[string]func() time.Time           // the end of each certificate, by its key of the configuration; zero: not known
	Version     string
}

// Metrics has the counters and gauges of a server.
type Metrics struct {
	registry *prometheus.Registry

	grants    *prometheus.CounterVec
	refusals  *prometheus.CounterVec
	releases  *prometheus.CounterVec
	logins    *prometheus.CounterVec
	transfers *prometheus.CounterVec
	bytes     *prometheus.CounterVec
	discards  *prometheus.CounterVec
	protected prometheus.Counter
	reloads   *prometheus.CounterVec
	hooks     *prometheus.CounterVec
	handOver  prometheus.Histogram
	hold      prometheus.Histogram
	sync      prometheus.Histogram
	etcdRead  prometheus.Histogram
	lag       prometheus.Gauge
}

// New makes a Metrics.
func New(state State) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	count := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ftplockd_" + name, Help: help}, labels)
		m.registry.MustRegister(c)
		return c
	}
	times := func(name, help string, first, factor float64, buckets int) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "ftplockd_" + name, Help: help, Buckets: prometheus.ExponentialBuckets(first, factor, buckets),
		})
		m.registry.MustRegister(h)
		return h
	}
	m.grants = count("grants_total", "Locks granted, by cause.", "cause")
	m.refusals = count("refusals_total", "MKDs of locks refused, by reason.", "reason")
	m.releases = count("releases_total", "Locks ended, by cause.", "cause")
	m.logins = count("logins_total", "Logins, by result.", "result")
	m.transfers = count("transfers_total", "Complete transfers, by direction.", "direction")
	m.bytes = count("transfer_bytes_total", "Bytes of files transferred, by direction.", "direction")
	m.discards = count("uploads_discarded_total", "Uploads discarded, by reason.", "reason")
	for _, c := range []*prometheus.CounterVec{m.refusals, m.discards} {
		c.WithLabelValues("disk-full") // an alarm on its rate needs the value before the first event
	}
	m.reloads = count("reloads_total", "Reloads of the configuration, by result.", "result")
	m.hooks = count("hook_runs_total", "Hooks run, by result.", "result")
	m.protected = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "ftplockd_protected_refusals_total", Help: "Refused changes of protected files.",
	})
	m.lag = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "ftplockd_reaper_lag_seconds", Help: "How late the last expired lock was ended.",
	})
	m.registry.MustRegister(m.protected, m.lag)
	m.handOver = times("handover_seconds", "From the end of a hold to the grant to a client that waited.", 0.0001, 4, 10)
	m.hold = times("hold_seconds", "How long locks were held.", 0.01, 4, 12)
	m.sync = times("journal_sync_seconds", "Duration of a sync of the journal.", 0.0001, 4, 10)
	m.etcdRead = times("etcd_read_seconds", "Time that etcd takes to answer a read, which a majority of its members confirms. The server measures it every five seconds.", 0.0005, 2, 14)
	m.registerGauges(state)
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// registerGauges registers the gauges, which call the functions of State at each scrape.
func (m *Metrics) registerGauges(state State) {
	gauge := func(name, help string, f func() float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "ftplockd_" + name, Help: help}, f))
	}
	number := func(name, help string, f func() int) {
		if f != nil {
			gauge(name, help, func() float64 { return float64(f()) })
		}
	}
	number("locks_held", "Locks that are held.", state.Held)
	number("waiting", "Clients in a queue for a lock.", state.Waiting)
	number("sessions", "Sessions that are logged in.", state.Sessions)
	number("transfers", "Transfers under way.", state.Transfers)
	number("cluster_term", "Number of terms of all servers so far. It grows by one with each failover.", state.Term)
	number("cluster_standbys", "Servers that stand by and are ready to serve.", state.Standbys)
	if state.Lease != nil {
		gauge("cluster_lease_seconds", "Time until the lease of this server ends unless it is renewed; 0: it is not active.", func() float64 { return state.Lease().Seconds() })
	}
	number("cluster_differing_settings", "Keys of the configuration in which this standby differs from the active server.", state.Differing)
	for _, name := range state.States {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "ftplockd_cluster_state", Help: "1 for the state that this server of several is in.", ConstLabels: prometheus.Labels{"state": name},
		}, func() float64 {
			if state.Cluster() == name {
				return 1
			}
			return 0
		}))
	}
	if state.Suspended != nil {
		gauge("cluster_suspended_seconds", "How long this server of several has been suspended; 0: it is not.", func() float64 { return state.Suspended().Seconds() })
	}
	if state.Database != nil {
		database := func(of func(size, quota int64, full bool) int64) func() float64 {
			return func() float64 { return float64(of(state.Database())) }
		}
		gauge("etcd_database_bytes", "Size of etcd's database, on the member where it is nearest to its quota.", database(func(size, _ int64, _ bool) int64 { return size }))
		gauge("etcd_quota_bytes", "Size of that database at which etcd refuses all changes; 0: not known.", database(func(_, quota int64, _ bool) int64 { return quota }))
		gauge("etcd_no_space", "1 if etcd refuses all changes since its database is full.", database(func(_, _ int64, full bool) int64 {
			if full {
				return 1
			}
			return 0
		}))
	}
	for key, expires := range state.Expires {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "ftplockd_certificate_expiry_timestamp_seconds", Help: "When a certificate expires, in seconds since 1970; 0: not known.",
			ConstLabels: prometheus.Labels{"certificate": key},
		}, func() float64 { return float64(max(0, expires().Unix())) }))
	}
	if state.JournalSize != nil {
		gauge("journal_bytes", "Size of the journal, history included.", func() float64 { return float64(state.JournalSize()) })
	}
	if state.Dropped != nil {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "ftplockd_events_dropped_total", Help: "Events, and lines of the log, that were lost since the xferlog or the reader of the log was too slow.",
		}, func() float64 { return float64(state.Dropped()) }))
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "ftplockd_build_info", Help: "1, with the version.", ConstLabels: prometheus.Labels{"version": state.Version},
	})
	info.Set(1)
	m.registry.MustRegister(info)
}

// Sink counts events.
func (m *Metrics) Sink(batch []event.Event) {
	for _, e := range batch {
		m.count(e)
	}
}

func (m *Metrics) count(e event.Event) {
	switch e.Kind {
	case event.Acquire:
		m.grants.WithLabelValues(e.Cause).Inc()
		if e.Waited > 0 {
			m.handOver.Observe(e.Free.Seconds())
		}
	case event.Refuse:
		m.refusals.WithLabelValues(e.Cause).Inc()
	case event.Release, event.Expire, event.Break:
		m.releases.WithLabelValues(e.Cause).Inc()
		m.hold.Observe(e.Held.Seconds())
		if e.Kind == event.Expire {
			m.lag.Set(e.Late.Seconds())
		}
	case event.Protect:
		m.protected.Inc()
	case event.Publish:
		m.transfer("up", e.Bytes, true)
	case event.Download:
		m.transfer("down", e.Bytes, e.Reason == "")
	case event.Discard:
		m.discards.WithLabelValues(discardReason(e.Cause)).Inc()
	case event.Login:
		m.logins.WithLabelValues("ok").Inc()
	case event.LoginFailed:
		m.logins.WithLabelValues("failed").Inc()
	case event.Reload:
		m.reloads.WithLabelValues(reloadResult(e.Reason)).Inc()
	}
}

func (m *Metrics) transfer(direction string, bytes int64, complete bool) {
	m.bytes.WithLabelValues(direction).Add(float64(bytes))
	if complete {
		m.transfers.WithLabelValues(direction).Inc()
	}
}

func reloadResult(reason string) string {
	if reason != "" {
		return "failed"
	}
	return "ok"
}

// discardReason returns the cause of a discarded upload as one of a few label values.
func discardReason(cause string) string {
	if cause == "" || strings.ContainsAny(cause, " /") {
		return "other"
	}
	return cause
}

// Synced counts one sync of the journal.
func (m *Metrics) Synced(took time.Duration) { m.sync.Observe(took.Seconds()) }

// EtcdRead counts one read of etcd.
func (m *Metrics) EtcdRead(took time.Duration) { m.etcdRead.Observe(took.Seconds()) }

// Hooked counts a hook: its result is "ok", "failed", "timeout" or "dropped".
func (m *Metrics) Hooked(result string) { m.hooks.WithLabelValues(result).Inc() }

// Handler answers scrapes.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}
