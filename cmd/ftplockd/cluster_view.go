package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock/etcd"
	"github.com/ftplockd/ftplockd/internal/server"
)

// clusterView is the output of "ftplockd cluster --json".
type clusterView struct {
	Members      []memberView    `json:"members"`
	Servers      []serverView    `json:"servers"` // the active one first
	Term         uint32          `json:"term"`
	Beat         *float64        `json:"beat_seconds,omitempty"` // since the last sign of life of the active server
	Suspended    time.Time       `json:"suspended_since,omitzero"`
	Certificates []server.Expiry `json:"certificates,omitempty"` // of this machine
}

// memberView is a member of etcd.
type memberView struct {
	Endpoint string `json:"endpoint"`
	Version  string `json:"version,omitempty"`
	Leader   bool   `json:"leader"`
	Behind   uint64 `json:"behind"`
	Bytes    int64  `json:"bytes"`
	Quota    int64  `json:"quota_bytes,omitempty"`
	State    string `json:"state"` // "ok", an alarm, or the reason why it does not work
	Answers  bool   `json:"answers"`
}

// notReady is the state of a server that could not serve, so it does not stand by.
const notReady = "not ready"

// serverView is a server.
type serverView struct {
	State   string   `json:"state"`             // "active", "taking over since TIME", "suspended", "standby" or "not ready"
	Differs []string `json:"differs,omitempty"` // keys of the configuration whose values differ from those of the active server
	etcd.Server
}

// readCluster returns the state of the members of etcd and, without an error, of the servers.
func readCluster(ctx context.Context, c *etcd.Cluster) (clusterView, error) {
	status, err := c.Status(ctx)
	v := clusterView{Members: []memberView{}, Servers: []serverView{}, Term: status.Epoch, Suspended: status.Suspended}
	if status.Beat >= 0 {
		seconds := status.Beat.Seconds()
		v.Beat = &seconds
	}
	for _, m := range status.Members {
		state := cmp.Or(m.Alarm, "ok")
		switch {
		case m.Err != nil:
			state = m.Err.Error()
		case m.Alone && m.Alarm == "":
			state = "no leader: it does not reach most of the others"
		}
		v.Members = append(v.Members, memberView{
			Endpoint: m.Endpoint, Version: m.Version, Leader: m.Leader, Behind: m.Lag, Bytes: m.Size, Quota: m.Quota, State: state, Answers: m.Err == nil,
		})
	}
	for i, s := range status.Servers {
		state := "active"
		switch {
		case i > 0:
			state = "standby"
		case !status.TakingOver.IsZero():
			state = "taking over since " + status.TakingOver.UTC().Format(time.RFC3339)
		case !status.Suspended.IsZero():
			state = "suspended"
		}
		differs := s.Differs(status.Servers[0])
		s.Settings = nil
		v.Servers = append(v.Servers, serverView{State: state, Differs: differs, Server: s})
	}
	for _, s := range status.NotReady {
		s.Settings = nil
		v.Servers = append(v.Servers, serverView{State: notReady, Server: s})
	}
	return v, err
}

// check returns an error if no server is active. failed is the error of etcd.
func (v *clusterView) check(failed error) error {
	if failed == nil && (len(v.Servers) == 0 || v.Servers[0].State == notReady) {
		return errors.New("no server is active or stands by")
	}
	return nil
}

// warn prints the settings that differ, and the certificates that have expired or expire soon.
func (v *clusterView) warn(w io.Writer) (err error) {
	for _, s := range v.Servers {
		if len(s.Differs) > 0 && err == nil {
			_, err = fmt.Fprintf(w, "warning: %s has other settings than the active server: %s\n", describeServer(s.Server), strings.Join(s.Differs, ", "))
		}
	}
	for _, e := range v.Certificates {
		if problem, _ := e.Problem(time.Now()); problem != "" && err == nil {
			_, err = fmt.Fprintf(w, "warning: %s: %s\n", e.Key, problem)
		}
	}
	return err
}

// show prints the members of etcd and, unless etcd did not answer, the servers.
func (v *clusterView) show(w io.Writer, failed error) error {
	if err := v.showMembers(w); err != nil || failed != nil {
		return err
	}
	return v.showServers(w)
}

func (v *clusterView) showMembers(w io.Writer) error {
	var rows []string
	for _, m := range v.Members {
		if !m.Answers {
			rows = append(rows, fmt.Sprintf("%s\t-\t-\t-\t-\t%s", m.Endpoint, printable(m.State)))
			continue
		}
		leader := "no"
		if m.Leader {
			leader = "yes"
		}
		rows = append(rows, fmt.Sprintf("%s\t%s\t%s\t%d\t%.1f MiB\t%s", m.Endpoint, printable(m.Version), leader, m.Behind, float64(m.Bytes)/(1<<20), m.State))
	}
	return printTable(w, "ETCD\tVERSION\tLEADER\tBEHIND\tDATABASE\tSTATE", rows, "etcd has no members")
}

func (v *clusterView) showServers(w io.Writer) error {
	var rows []string
	for i, s := range v.Servers {
		state := s.State
		switch {
		case state == notReady:
			state += ": " + printable(s.NotReady)
		case i > 0:
			state = fmt.Sprintf("standby %d", i)
		}
		rows = append(rows, fmt.Sprintf("%s\t%s\t%s\t%s\t%s", state, printable(s.Name), printable(strings.Join(s.Addresses, ", ")),
			printable(s.Version), s.Since.UTC().Format(time.RFC3339)))
	}
	fmt.Fprintln(w)
	if err := printTable(w, "STATE\tSERVER\tADDRESSES\tVERSION\tSTARTED", rows, "there is no server"); err != nil {
		return err
	}
	beat := "there was no sign of life yet"
	if v.Beat != nil {
		beat = fmt.Sprintf("the last sign of life was %.1fs ago", *v.Beat)
	}
	if !v.Suspended.IsZero() {
		beat += fmt.Sprintf("; the active server has been suspended since %s: etcd has not confirmed its changes", v.Suspended.Format(time.RFC3339))
	}
	_, err := fmt.Fprintf(w, "\nterm %d; %s\n", v.Term, beat)
	return err
}
