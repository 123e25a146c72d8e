package driver

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/control"
	"github.com/ftplockd/ftplockd/lock"
	"github.com/ftplockd/ftplockd/lock/locktest"
)

// leftBehind is a handler that has a waiter look only when its client has hung up.
type leftBehind struct {
	waiting *lock.Waiting
	over    chan bool
}

func (h *leftBehind) Command(c *control.Conn, _ control.Command) control.Decision {
	if !c.GoneWithin(10 * time.Second) {
		close(h.over)
		return reply(200, "it does not hang up")
	}
	w := &waiter{session: &session{conn: c, server: &Server{context: context.Background()}}, waiting: h.waiting}
	_, over := w.Poll()
	h.over <- over
	return reply(200, "done")
}

func (h *leftBehind) Reply(*control.Conn, int, []byte) ([]byte, bool) { return nil, false }
func (h *leftBehind) Ended(*control.Conn, control.Reason)             {}

func TestNoLockIsGrantedToAWaiterThatHasHungUp(t *testing.T) {
	rules, err := lock.NewRules([]lock.Rule{{Match: "/x", Contention: &lock.Contention{Wait: time.Minute}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	table, err := lock.NewTable(ctx, lock.Options{Store: locktest.NewMemory(), Clock: lock.NewFakeClock(), Rules: rules})
	if err != nil {
		t.Fatal(err)
	}
	holder, next := table.Open(lock.Owner{Account: "a"}), table.Open(lock.Owner{Account: "b"})
	if _, err := holder.Acquire(ctx, "/x"); err != nil {
		t.Fatal(err)
	}
	_, waiting, _ := next.AcquireOrWait(ctx, "/x", func() {})
	if err := holder.Release(ctx, "/x"); err != nil { // it is the other's turn
		t.Fatal(err)
	}
	h := &leftBehind{waiting, make(chan bool, 1)}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := control.NewListener(control.Options{NewHandler: func(*control.Conn) control.Handler { return h }}, control.Source{Listener: tcp})
	served := make(chan struct{})
	go func() {
		defer close(served)
		if conn, err := l.Accept(); err == nil {
			_, _ = conn.Read(make([]byte, 100))
			_ = conn.Close()
		}
	}()
	client, err := net.Dial("tcp", tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Write([]byte("MKD /x\r\n")); err != nil {
		t.Fatal(err)
	}
	_ = client.Close()
	if over, ok := <-h.over; over || !ok {
		t.Error("the lock was granted to a client that has gone")
	}
	if _, held := table.Get("/x"); held {
		t.Error("the lock is held")
	}
	<-served
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
