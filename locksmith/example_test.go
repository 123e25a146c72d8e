package locksmith_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ftplockd/ftplockd/locksmith"
)

// pretend is a server for the examples: it has one account and one lock.
type pretend struct {
	held atomic.Bool
	data atomic.Pointer[net.Conn] // our end of the data connection
}

// dial is locksmith.Server.DialContext.
func (p *pretend) dial(_ context.Context, _, address string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	if strings.HasSuffix(address, ":2000") {
		p.data.Store(&ours)
	} else {
		go p.serve(ours)
	}
	return theirs, nil
}

func (p *pretend) serve(c net.Conn) {
	defer c.Close()
	fmt.Fprint(c, "220 ready\r\n")
	mine := "no"
	for lines := bufio.NewScanner(c); lines.Scan(); {
		answer := "200 ok"
		switch verb, param, _ := strings.Cut(lines.Text(), " "); {
		case verb == "USER":
			answer = "230 in"
		case verb == "FEAT":
			answer = "211-Features:\r\n SITE LOCK FACTS type;token;\r\n STOR STAGED\r\n211 End"
		case verb == "PWD":
			answer = `257 "/"`
		case verb == "MKD" && p.held.CompareAndSwap(false, true):
			answer, mine = `257 "/phone_lock" locked, token 42, expires in 24h0m0s`, "session"
		case verb == "MKD":
			answer, mine = "550 /phone_lock: held by phoneacc@10.0.0.5 for 12s, expires in 23h59m48s", "no"
		case strings.HasPrefix(lines.Text(), "SITE LOCK INFO") && p.held.Load():
			answer = "211-Lock /phone_lock\r\n type=lock;token=42;account=phoneacc;address=10.0.0.5;held=12.000;left=86388.000;age=86400.000;mine=" + mine + ";mkd=later; /phone_lock\r\n211 End"
		case strings.HasPrefix(lines.Text(), "SITE LOCK INFO"):
			answer = "211-Lock /phone_lock\r\n type=free;waiting=0;mkd=granted; /phone_lock\r\n211 End"
		case verb == "EPSV":
			answer = "229 here (|||2000|)"
		case verb == "STOR":
			fmt.Fprint(c, "150 go\r\n")
			io.Copy(io.Discard, *p.data.Load())
			fmt.Println("stored", param)
			answer = "226 done"
		case verb == "RMD":
			p.held.Store(false)
		case verb == "QUIT":
			fmt.Fprint(c, "221 bye\r\n")
			return
		}
		fmt.Fprint(c, answer+"\r\n")
	}
}

var config = locksmith.Config{Address: "ftp.example.com", User: "phoneacc", Password: "secret", DialContext: new(pretend).dial}

// A nightly job: it waits for the lock at most an hour, works, and fails if the lock was lost meanwhile.
func ExampleDo() {
	options := locksmith.Options{Wait: time.Hour}
	err := locksmith.Do(context.Background(), config, "/phone_lock", options, func(ctx context.Context, lock *locksmith.Lock) error {
		// ctx ends before another client can have the lock.
		return lock.Put(ctx, "/phone.tsv", strings.NewReader("alice\t12345\n"), -1)
	})
	fmt.Println(err)
	// Output:
	// stored /phone.tsv
	// <nil>
}

// A long-running service: it works while it holds the lock. When it has lost the lock, it acquires it again.
func ExampleAcquire() {
	ctx, stop := context.WithCancel(context.Background()) // signal.NotifyContext in a program
	options := locksmith.Options{Renew: true, OnWait: func(err error) { fmt.Println("waiting:", err) }}
	work := func(ctx context.Context, token uint64) {
		fmt.Println("working with token", token)
		stop()
		<-ctx.Done()
	}
	for ctx.Err() == nil {
		lock, err := locksmith.Acquire(ctx, config, "/phone_lock", options)
		if err != nil {
			fmt.Println(err) // the service was stopped, or its configuration is wrong
			return
		}
		held, cancel := context.WithCancel(lock.Context())
		context.AfterFunc(ctx, cancel)
		work(held, lock.Token())
		cancel()
		fmt.Println("released:", lock.Release(ctx))
	}
	// Output:
	// working with token 42
	// released: <nil>
}

// TryAcquire does not wait.
func ExampleTryAcquire() {
	ctx := context.Background()
	lock, err := locksmith.TryAcquire(ctx, config, "/phone_lock", locksmith.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = locksmith.TryAcquire(ctx, config, "/phone_lock", locksmith.Options{})
	fmt.Println(errors.Is(err, locksmith.ErrHeld), err)
	status, err := locksmith.Stat(ctx, config, "/phone_lock")
	fmt.Println(status.Holders[0].Token, err)
	fmt.Println(lock.Release(ctx), lock.Context().Err())
	// Output:
	// true /phone_lock: held by phoneacc@10.0.0.5 for 12s
	// 42 <nil>
	// <nil> context canceled
}
