package etcd

import (
	"context"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Status is what [Cluster.Status] found.
type Status struct {
	Members []Member
	Servers []Server      // the active one first, then those that stand by, in the order in which they take over
	Epoch   uint32        // how many terms there have been
	Beat    time.Duration // how old the last sign of life of the active server is, by the wall clock; -1: there never was one

	Suspended time.Time // since when the active server has been suspended, as it wrote with its last sign of life; zero: it serves
	Why       string    // it is suspended
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
	Err      error  // why it does not answer; nothing else is known then

	cluster uint64 // etcd's id of what it is a member of
}

// Status reads the state of every member of etcd, and from one of them the servers.
func (c *Cluster) Status(ctx context.Context) (Status, error) {
	s := Status{Members: c.look(ctx), Beat: -1}
	resp, err := c.members.txn(ctx, nil, []clientv3.Op{
		c.getServers(), clientv3.OpGet(c.keys.epoch()), clientv3.OpGet(c.keys.beat()),
	}, nil)
	if err != nil {
		return s, fmt.Errorf("etcd: %s%w", s.minority(), plain(err))
	}
	for _, kv := range kvs(resp, 0) {
		s.Servers = append(s.Servers, decodeServer(kv))
	}
	s.Epoch = uint32(number64(one(resp, 1)))
	if b, ok := decodeBeat(one(resp, 2)); ok {
		s.Beat = c.o.Clock.Now().Wall.Sub(b.Wall)
		s.Suspended, s.Why = b.Suspended, b.Why
	}
	return s, nil
}

// Space is the space of etcd's database. That of the fullest member counts, since each of them stops the cluster.
type Space struct {
	Size, Quota int64 // in bytes; 0: not known
	Full        bool  // etcd has stopped all changes
}

// Nearly reports whether the database has reached four fifths of its quota.
func (s Space) Nearly() bool { return s.Quota > 0 && s.Size >= s.Quota/5*4 }

// Space reads the space of every member of etcd. It returns an error if none answers.
func (c *Cluster) Space(ctx context.Context) (s Space, err error) {
	members := c.look(ctx)
	fullest := -1.0
	for _, m := range members {
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
		err = nil
	}
	return s, err
}

// minority returns how many members answer, if that is too few.
func (s Status) minority() string {
	answer := 0
	for _, m := range s.Members {
		if m.Err == nil {
			answer++
		}
	}
	if 2*answer > len(s.Members) {
		return ""
	}
	return fmt.Sprintf("%d of %d members answer, and most of them must: ", answer, len(s.Members))
}

// look reads the state of all members at once.
func (c *Cluster) look(ctx context.Context) []Member {
	found := make([]Member, len(c.members.all))
	var asking sync.WaitGroup
	for i := range found {
		asking.Go(func() { found[i] = c.lookAt(ctx, i) })
	}
	asking.Wait()
	return found
}

func (c *Cluster) lookAt(ctx context.Context, i int) Member {
	m := Member{Endpoint: c.members.all[i].endpoint}
	client, err := c.members.use(i)
	if err != nil {
		m.Err = err
		return m
	}
	ctx, cancel := context.WithTimeout(ctx, 2*c.o.RequestTimeout)
	defer cancel()
	status, err := client.Status(ctx, m.Endpoint)
	if err != nil {
		m.Err = plain(err)
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
