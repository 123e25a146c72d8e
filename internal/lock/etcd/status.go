package etcd

import (
	"context"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Status is the state of etcd and of the servers.
type Status struct {
	Members  []Member
	Servers  []Server      // the active one first, then those that stand by, in the order in which they take over
	NotReady []Server      // the servers that could not serve, so they do not stand by
	Epoch    uint32        // the number of terms so far
	Beat     time.Duration // the age of the active server's last beat, by the wall clock; -1: there was none

	// TakingOver is the time since when the first server takes over; zero: it serves, or is suspended.
	TakingOver time.Time
	// Suspended is the time of the last beat of a server that is suspended, because etcd has not confirmed its changes since; zero: it
	// is not, or etcd has received no request from it since.
	Suspended time.Time
}

// Member is one member of etcd.
type Member struct {
	Endpoint string
	Version  string
	Leader   bool   // it is etcd's own leader
	Lag      uint64 // the number of changes that it has received and not applied yet
	Size     int64  // of its database, in bytes
	Quota    int64  // the size at which it stops all changes; 0: not known, since etcd reports it from 3.6 on
	Alarm    string // NOSPACE: nothing can be written
	Alone    bool   // it has no leader: it does not reach most of the others
	Err      error  // why it does not answer; then nothing else is known

	cluster uint64 // the id that etcd gave the cluster
}

// Status reads the state of every member of etcd, and from one of them the servers.
func (c *Cluster) Status(ctx context.Context) (Status, error) {
	s := Status{Members: c.memberStates(ctx), Beat: -1}
	servers, epoch, last, err := c.servers(ctx)
	if err != nil {
		return s, fmt.Errorf("etcd: %w", withoutGRPC(err))
	}
	for _, kv := range servers {
		s.Servers = append(s.Servers, decodeServer(kv))
	}
	aside, err := c.members.txn(ctx, nil, []clientv3.Op{clientv3.OpGet(c.keys.allNotReady(), clientv3.WithPrefix())}, nil)
	if err != nil {
		return s, fmt.Errorf("etcd: %w", withoutGRPC(err))
	}
	for _, kv := range keysRead(aside, 0) {
		s.NotReady = append(s.NotReady, decodeServer(kv))
	}
	s.Epoch = uint32(epoch)
	if b, ok := decodeBeat(last); ok {
		s.Beat = c.o.Clock.Now().Wall.Sub(b.Wall)
		s.TakingOver = b.takingOver(servers, c.o.Clock.Now().Wall)
		// The active server has moved the fence, and made no beat since then.
		if len(servers) > 0 && s.TakingOver.IsZero() && servers[0].ModRevision > last.ModRevision {
			s.Suspended = b.Wall
		}
	}
	return s, nil
}

// takingOver returns the time since when the first of the servers takes over; zero: it serves. b is the last beat. If that is not a beat of the server,
// it begins now.
func (b beat) takingOver(servers []*mvccpb.KeyValue, now time.Time) time.Time {
	if len(servers) > 0 && b.Server != "" && b.Server != string(servers[0].Key) {
		return now.UTC()
	}
	return b.TakingOver
}

// Overview is a short form of Status.
type Overview struct {
	Term     uint32        // the number of terms so far
	Standbys int           // servers that stand by: they are ready to serve
	Took     time.Duration // time that etcd took for the answer
}

// Overview reads the servers.
func (c *Cluster) Overview(ctx context.Context) (Overview, error) {
	began := time.Now()
	servers, epoch, _, err := c.servers(ctx)
	if err != nil {
		return Overview{}, fmt.Errorf("etcd: %w", withoutGRPC(err))
	}
	return Overview{Term: uint32(epoch), Standbys: max(0, len(servers)-1), Took: time.Since(began)}, nil
}

// servers reads the election keys, the oldest first, the epoch and the last beat.
func (c *Cluster) servers(ctx context.Context) (servers []*mvccpb.KeyValue, epoch uint64, beat *mvccpb.KeyValue, err error) {
	resp, err := c.members.txn(ctx, nil, []clientv3.Op{c.getServers(), clientv3.OpGet(c.keys.epoch()), clientv3.OpGet(c.keys.beat())}, nil)
	return keysRead(resp, 0), parseDecimal(firstKeyRead(resp, 1)), firstKeyRead(resp, 2), err
}

// Space is the space of the database of the member that is nearest to its quota. A full member stops the cluster.
type Space struct {
	Size, Quota int64 // in bytes; 0: not known
	Full        bool  // etcd has stopped all changes
}

// Nearly reports whether the database has reached four fifths of its quota.
func (s Space) Nearly() bool { return s.Quota > 0 && s.Size >= s.Quota/5*4 }

// Space reads the space of every member of etcd. It returns an error if none answers.
func (c *Cluster) Space(ctx context.Context) (s Space, err error) {
	fullest := -1.0
	for _, m := range c.memberStates(ctx) {
		if m.Err != nil {
			err = m.Err
			continue
		}
		s.Full = s.Full || m.Alarm == pb.AlarmType_NOSPACE.String()
		if full := float64(m.Size) / float64(max(m.Quota, 1)); full > fullest {
			fullest, s.Size, s.Quota = full, m.Size, m.Quota
		}
	}
	if fullest >= 0 {
		return s, nil
	}
	return s, err
}

// memberStates reads the state of all members at once.
func (c *Cluster) memberStates(ctx context.Context) []Member {
	found := make([]Member, len(c.members.all))
	var asking sync.WaitGroup
	for i := range found {
		asking.Go(func() { found[i] = c.memberState(ctx, i) })
	}
	asking.Wait()
	return found
}

func (c *Cluster) memberState(ctx context.Context, i int) Member {
	m := Member{Endpoint: c.members.all[i].endpoint}
	client, err := c.members.clientOf(i)
	if err != nil {
		m.Err = err
		return m
	}
	ctx, cancel := context.WithTimeout(ctx, 2*c.o.RequestTimeout)
	defer cancel()
	status, err := client.Status(ctx, m.Endpoint)
	if err != nil {
		m.Err = withoutGRPC(err)
		return m
	}
	m.Version, m.Leader, m.Size = status.Version, status.Leader == status.Header.MemberId, status.DbSize
	m.Quota = status.DbSizeQuota
	m.Alone = status.Leader == 0
	m.cluster = status.Header.ClusterId
	m.Lag = status.RaftIndex - min(status.RaftIndex, status.RaftAppliedIndex)
	if m.Alone {
		return m // the next request would wait for a leader
	}
	alarms, err := client.AlarmList(ctx)
	if err != nil {
		return m
	}
	for _, alarm := range alarms.Alarms {
		if alarm.MemberID == status.Header.MemberId && alarm.Alarm != pb.AlarmType_NONE {
			m.Alarm = alarm.Alarm.String()
		}
	}
	return m
}
