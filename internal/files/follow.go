package files

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"os"
	"sync/atomic"
)

// An upload that is shorter than followStep has no follower. A longer one waits if its follower is followBehind steps behind, so that little work
// is left at its end: the client sees a slow transfer, and no long wait for the reply.
const (
	followStep   = 8 << 20
	followBehind = 8
)

// follower works on the steps of a large upload on a goroutine of its own, while the rest arrives: it writes them to the disk, and reads them for
// the SHA-256, because splice does not show the bytes.
type follower struct {
	file    *os.File
	durable bool      // each step is on the disk when followBehind more have come; else the system decides
	sum     hash.Hash // of the bytes before hashed; nil: no digest is wanted
	hashed  int64
	err     error

	steps     chan int64    // the ends of the steps that have arrived
	abandoned atomic.Bool   // nothing needs the work any more
	done      chan struct{} // closed when the goroutine has ended; hashed and err belong to the goroutine until then
}

func (f *follower) run() {
	defer close(f.done)
	for end := range f.steps {
		if f.err == nil && !f.abandoned.Load() {
			f.step(end)
		}
	}
}

func (f *follower) step(end int64) {
	startWriteBack(f.file, end-followStep, followStep)
	if f.sum != nil {
		f.hash(end)
	}
	if early := end - (followBehind+1)*followStep; f.durable && early >= 0 && f.err == nil {
		f.err = awaitWriteBack(f.file, early, followStep)
	}
}

// hash adds the bytes before end to the digest.
func (f *follower) hash(end int64) {
	section := io.NewSectionReader(f.file, f.hashed, end-f.hashed)
	f.hashed = end
	_, f.err = io.CopyBuffer(f.sum, section, make([]byte, min(section.Size(), 256<<10)+1))
}

// follow gives the follower the steps that have arrived. It starts one at the first step, if there is anything to do.
func (u *Upload) follow() {
	for ; u.followed+followStep <= u.size && (u.options.Sum || u.writeBack); u.followed += followStep {
		if u.follower == nil {
			u.follower = &follower{file: u.file, durable: u.settings.durable, steps: make(chan int64, followBehind), done: make(chan struct{})}
			if u.options.Sum {
				u.follower.sum = sha256.New()
			}
			go u.follower.run()
		}
		u.follower.steps <- u.followed + followStep
	}
}

// endFollower waits until the follower, if there is one, has worked on its steps, and returns its error.
func (u *Upload) endFollower() error {
	f := u.follower
	if f == nil {
		return nil
	}
	u.follower = nil
	close(f.steps)
	<-f.done
	return f.err
}

// Sum returns the SHA-256 of the content, in hexadecimal. No Write may follow. With UploadOptions.Sum most of a large file was read while it
// arrived.
func (u *Upload) Sum() (string, error) {
	f := u.follower
	err := u.endFollower()
	if f == nil || f.sum == nil {
		f = &follower{file: u.file, sum: sha256.New()}
	}
	if err == nil {
		f.hash(u.size)
		err = f.err
	}
	if err != nil {
		return "", fail("sum", u.name, err)
	}
	return hex.EncodeToString(f.sum.Sum(nil)), nil
}
