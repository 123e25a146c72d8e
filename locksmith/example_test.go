package locksmith_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ftplockd/ftplockd/locksmith"
)

// pretend is a server for the examples: it has one account and one lock.
type pretend struct{ held atomic.Bool }

// dial is locksmith.Server.DialContext.
func (p *pretend) dial(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	go p.serve(ours)
	return theirs, nil
}

func (p *pretend) serve(c net.Conn) {
	defer c.Close()
	fmt.Fprint(c, "220 ready\r\n")
	mine := "no"
	for lines := bufio.NewScanner(c); lines.Scan(); {
		answer := "200 ok"
		switch verb, _, _ := strings.Cut(lines.Text(), " "); {
		case verb == "USER":
			answer = "230 in"
		case verb == "FEAT":
			answer = "211-Features:\r\n SITE LOCK FACTS type;token;\r\n211 End"
		case verb == "PWD":
			answer = `257 "/"`
		case verb == "MKD" && p.held.CompareAndSwap(false, true):
			answer, mine = `257 "/phone_lock" locked, token 42, expires in 24h0m0s`, "session"
		case verb == "MKD":
			answer, mine = "550 /phone_lock: held by phoneacc@10.0.0.5 for 12s, expires in 23h59m48s", "no"
		case strings.HasPrefix(lines.Text(), "SITE LOCK INFO") && p.held.Load():
			answer = "211-Lock /phone_lock\r\n type=lock;token=42;account=phoneacc;address=10.0.0.5;held=12.000;left=86388.000;age=86400.000;mine=" + mine + ";mkd=later; /phone_lock\r\n211 End"
		case strings.HasPrefix(lines.Text(), "SITE LOCK INFO"):
			answer = "550 /phone_lock: not held"
		case verb == "RMD":
			p.held.Store(false)
		case verb == "QUIT":
			fmt.Fprint(c, "221 bye\r\n")
			return
		}
		fmt.Fprint(c, answer+"\r\n")
	}
}

var server = locksmith.Server{Address: "ftp.example.com", User: "phoneacc", Password: "secret", DialContext: new(pretend).dial}

// Do waits for the lock at most until its context ends, and releases it after the function.
func ExampleClient_Do() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, err := locksmith.Dial(ctx, server)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	err = client.Do(ctx, "/phone_lock", func(ctx context.Context, lock *locksmith.Lock) error {
		fmt.Println("token", lock.Token(), "- ctx ends before another client can have the lock")
		return nil
	})
	fmt.Println(err)
	// Output:
	// token 42 - ctx ends before another client can have the lock
	// <nil>
}

// A client may hold several locks over its one connection.
func ExampleClient_TryAcquire() {
	ctx := context.Background()
	client, err := locksmith.Dial(ctx, server)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	lock, err := client.Acquire(ctx, "/phone_lock", locksmith.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(lock.Path(), lock.Token(), lock.Valid())

	_, err = client.TryAcquire(ctx, "/phone_lock", locksmith.Options{})
	fmt.Println(errors.Is(err, locksmith.ErrHeld), err)

	fmt.Println(lock.Release(ctx), lock.Valid())
	// Output:
	// /phone_lock 42 true
	// true /phone_lock: held by phoneacc@10.0.0.5 for 12s
	// <nil> false
}

// Put and Get transfer files under the lock. The context ends with the lock, and so does the transfer.
func ExampleLock_Put() {
	replace := func(ctx context.Context, lock *locksmith.Lock) error {
		f, err := os.Open("phone.tsv")
		if err != nil {
			return err
		}
		defer f.Close()
		return lock.Put(ctx, "/phone.tsv", f, -1)
	}
	_ = replace
}
