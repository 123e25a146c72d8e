package locksmith_test

import (
	"bufio"
	"context"
	"crypto/rand"
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
	job  atomic.Value             // the job key of the holder
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
	mine, job := "no", ""
	for lines := bufio.NewScanner(c); lines.Scan(); {
		answer := "200 ok"
		switch verb, param, _ := strings.Cut(lines.Text(), " "); {
		case verb == "USER":
			answer = "230 in"
		case verb == "FEAT":
			answer = "211-Features:\r\n SITE LOCK FACTS type;token;\r\n STOR STAGED\r\n211 End"
		case verb == "PWD":
			answer = `257 "/"`
		case strings.HasPrefix(param, "LOCK AS "):
			job = strings.TrimPrefix(param, "LOCK AS ")
		case verb == "MKD" && p.held.CompareAndSwap(false, true):
			p.job.Store(job)
			answer, mine = `257 "/phone_lock" locked, token 42, expires in 24h0m0s`, "session"
		case verb == "MKD":
			answer, mine = "550 /phone_lock: held by phoneacc@10.0.0.5 for 12s, expires in 23h59m48s", "no"
		case strings.HasPrefix(lines.Text(), "SITE LOCK INFO") && p.held.Load():
			if mine == "no" && job == p.job.Load() {
				mine = "job"
			}
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

// A long-running service: it works while it holds the lock. When it has lost the lock, it stops its work, releases the lock and acquires it again. Its job key
// makes it adopt its own old lock. A server that is away or restarts is no error: Acquire waits for it.
func ExampleAcquire() {
	ctx, stop := context.WithCancel(context.Background()) // signal.NotifyContext in a program
	defer stop()
	config := config
	config.JobKey = rand.Text() // one for the process
	options := locksmith.Options{Renew: true, OnWait: func(err error) { fmt.Println("waiting:", err) }}
	work := func(ctx context.Context, token uint64) { // it ends with ctx
		fmt.Println("working with token", token)
		stop()
		<-ctx.Done()
	}
	for ctx.Err() == nil {
		lock, err := locksmith.Acquire(ctx, config, "/phone_lock", options)
		switch {
		case ctx.Err() != nil && err != nil:
			fmt.Println(err) // the service was stopped
			return
		case errors.Is(err, locksmith.ErrLogin), errors.Is(err, locksmith.ErrTLS), errors.Is(err, locksmith.ErrRefused), errors.Is(err, locksmith.ErrUnreachable):
			fmt.Println(err) // a person must help: the account, the certificate, the lock's name or the host is wrong
			select {         // or exit, if a supervisor starts the service again and reports that
			case <-ctx.Done():
			case <-time.After(time.Minute):
			}
			continue
		case err != nil: // such as ErrLost: the lock was taken away at once
			continue
		}
		held, cancel := context.WithCancel(lock.Context())
		context.AfterFunc(ctx, cancel)
		work(held, lock.Token())
		cancel()
		limited, done := context.WithTimeout(context.Background(), time.Second) // the time limit of the service's end
		fmt.Println("released:", lock.Release(limited))
		done()
	}
	// Output:
	// working with token 42
	// released: <nil>
}

// A nightly job whose second half is another process. The first process waits for the second one, because the joined lock ends with its lock.
func ExampleJoin() {
	secondHalf := func(ctx context.Context, text string) error { // a program that gets the text in an environment variable
		ticket, err := locksmith.ParseTicket(text)
		if err != nil {
			return err
		}
		lock, err := locksmith.Join(ctx, config, ticket, locksmith.Options{Wait: time.Minute})
		if err != nil {
			return err
		}
		err = lock.Put(lock.Context(), "/summary.tsv", strings.NewReader("1 entry\n"), -1)
		return errors.Join(err, lock.Release(ctx)) // a last check; the first half still holds the lock
	}
	options := locksmith.Options{Wait: time.Hour}
	err := locksmith.Do(context.Background(), config, "/phone_lock", options, func(ctx context.Context, lock *locksmith.Lock) error {
		if err := lock.Put(ctx, "/phone.tsv", strings.NewReader("alice\t12345\n"), -1); err != nil {
			return err
		}
		return secondHalf(ctx, lock.Ticket().String()) // exec.CommandContext(ctx, ...).Run()
	})
	fmt.Println(err)
	// Output:
	// stored /phone.tsv
	// stored /summary.tsv
	// <nil>
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
