package integration

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// soaker is the load of TestSoak: clients of many kinds, some of which die, and what they were told.
type soaker struct {
	end time.Time

	up      sync.RWMutex // held for reading by who connects, for writing while the server is being killed and started
	address string

	kinds   map[string]*atomic.Int64 // how often each kind of work was done to its end
	refused atomic.Int64             // by the server, in order

	mu     sync.Mutex
	tokens map[uint64]string // every token that was told to a client, and of which lock
	counts map[string]int    // the highest value of each counter that was acknowledged
	added  map[string]bool   // the values that were acknowledged, "counter value"
	wrong  []string          // what must not be
}

func newSoaker(end time.Time, address string) *soaker {
	k := &soaker{end: end, address: address, kinds: map[string]*atomic.Int64{}, tokens: map[uint64]string{}, counts: map[string]int{}, added: map[string]bool{}}
	for name := range soakWork {
		k.kinds[name] = new(atomic.Int64)
	}
	return k
}

func (k *soaker) complain(format string, args ...any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.wrong = append(k.wrong, fmt.Sprintf(format, args...))
}

// over reports whether the time is over and each kind of work has come to its end once, for which a slow machine gets a minute more.
func (k *soaker) over() bool {
	now := time.Now()
	if now.Before(k.end) {
		return false
	}
	for name, n := range k.kinds {
		if n.Load() == 0 && name != "stall" && name != "cut" { // those end their session
			return now.After(k.end.Add(time.Minute))
		}
	}
	return true
}

// connect logs in, however often the server is killed meanwhile.
func (k *soaker) connect() *session {
	for !k.over() {
		k.up.RLock()
		s, err := login(k.address, account)
		k.up.RUnlock()
		if err == nil {
			return s
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

// soakWork are the kinds of work; each is one round of one session, and tells whether it came to its end.
var soakWork = map[string]func(*soaker, *session, *rand.Rand) error{
	"lock":      (*soaker).lock,
	"forget":    (*soaker).forget,
	"wait":      (*soaker).wait,
	"count":     (*soaker).count,
	"upload":    (*soaker).upload,
	"cut":       (*soaker).cut,
	"stall":     (*soaker).stall,
	"read":      (*soaker).read,
	"look":      (*soaker).look,
	"replace":   (*soaker).replace,
	"directory": (*soaker).directory,
}

// work does one kind of work again and again, in sessions that end well or are cut off.
func (k *soaker) work(name string, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	for !k.over() {
		s := k.connect()
		if s == nil {
			return
		}
		if r, err := s.Try("TYPE I"); err != nil || r.Code != 200 {
			s.Conn.Close()
			continue
		}
		var err error
		for rounds := random.IntN(20); rounds >= 0 && err == nil && !k.over(); rounds-- {
			if err = soakWork[name](k, s, random); err == nil {
				k.kinds[name].Add(1)
			}
			if r := (*harness.Refused)(nil); errors.As(err, &r) {
				k.refused.Add(1)
				err = nil
			}
		}
		if err == nil && random.IntN(2) == 0 {
			_, _ = s.Try("QUIT")
		}
		s.Conn.Close()
	}
}

// say sends a command whose reply must have one of the codes, or is a refusal.
func (s *session) say(line string, codes ...int) (harness.Reply, error) {
	r, err := s.Try(line)
	if err != nil {
		return r, err
	}
	for _, code := range codes {
		if r.Code == code {
			return r, nil
		}
	}
	return r, &harness.Refused{Reply: r}
}

// take is MKD of a lock. Its token was told to nobody before.
func (k *soaker) take(s *session, name string) error {
	r, err := s.say("MKD "+name, 257)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if before, is := k.tokens[harness.Token(r)]; is || harness.Token(r) == 0 {
		k.wrong = append(k.wrong, fmt.Sprintf("token %d of %s was given for %s before", harness.Token(r), name, before))
	}
	k.tokens[harness.Token(r)] = name
	return nil
}

func (k *soaker) lock(s *session, random *rand.Rand) error {
	name := fmt.Sprintf("/locks/%d", random.IntN(10))
	if err := k.take(s, name); err != nil {
		return err
	}
	_, err := s.say("RMD "+name, 250)
	return err
}

// forget takes a lock and leaves it to the reaper, with a note in it.
func (k *soaker) forget(s *session, random *rand.Rand) error {
	name := fmt.Sprintf("/locks/forgotten-%d", random.IntN(10))
	if err := k.take(s, name); err != nil {
		return err
	}
	return s.Store(name+"/owner", []byte("nobody"))
}

// wait has MKD wait; in one of four cases the client is gone before its turn.
func (k *soaker) wait(s *session, random *rand.Rand) error {
	if _, err := s.say("SITE WAIT 2", 200); err != nil {
		return err
	}
	if random.IntN(4) == 0 {
		_ = s.Send("MKD /locks/wanted")
		time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond)
		return errors.New("gone")
	}
	if err := k.take(s, "/locks/wanted"); err != nil {
		return err
	}
	time.Sleep(time.Duration(random.IntN(5)) * time.Millisecond)
	_, err := s.say("RMD /locks/wanted", 250)
	return err
}

// count adds one to a file that its lock protects. No value is acknowledged twice, and the file never has less than
// was acknowledged before the lock was asked for.
func (k *soaker) count(s *session, random *rand.Rand) error {
	which := fmt.Sprintf("/count%d", random.IntN(3))
	k.mu.Lock()
	least := k.counts[which]
	k.mu.Unlock()
	if err := k.take(s, which+"_lock"); err != nil {
		return err
	}
	text, err := s.Retrieve("RETR " + which + ".tsv")
	if r := (*harness.Refused)(nil); least == 0 && errors.As(err, &r) && r.Reply.Code == 550 {
		text, err = []byte("0"), nil // nobody has made it yet
	}
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(string(text))
	if err != nil || n < least {
		k.complain("%s.tsv holds %q after %d was acknowledged", which, text, least)
		return err
	}
	if err := s.Store(which+".tsv", fmt.Appendf(nil, "%d", n+1)); err != nil {
		return err
	}
	k.acknowledged(which, n+1)
	_, err = s.say("RMD "+which+"_lock", 250)
	return err
}

func (k *soaker) acknowledged(which string, n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	value := fmt.Sprint(which, " ", n)
	if k.added[value] {
		k.wrong = append(k.wrong, value+" was acknowledged twice: an update is lost")
	}
	k.added[value] = true
	k.counts[which] = max(n, k.counts[which])
}

// patterned is a file that can be told to be whole: its size, and bytes that follow from the seed.
func patterned(size int, seed byte) []byte {
	head := fmt.Appendf(nil, "%d %d\n", size, seed)
	body := make([]byte, size)
	for i := range body {
		body[i] = seed + byte(i) + byte(i>>8)
	}
	return append(head, body...)
}

// isPatterned reports whether that is such a file.
func isPatterned(file []byte) bool {
	var size int
	var seed byte
	if _, err := fmt.Sscanf(string(file[:min(len(file), 40)]), "%d %d\n", &size, &seed); err != nil || size > 1<<20 {
		return false
	}
	return bytes.Equal(file, patterned(size, seed))
}

func (k *soaker) file(random *rand.Rand) (name string, what []byte) {
	return fmt.Sprintf("/pub/file-%d", random.IntN(12)), patterned(random.IntN(200_000), byte(random.IntN(256)))
}

func (k *soaker) upload(s *session, random *rand.Rand) error {
	name, what := k.file(random)
	return s.Store(name, what)
}

// cut is an upload that ends before its end: by ABOR, or with the control connection, or with the reset of the data connection.
// It announces its length: without that one of some ten thousands is taken for finished when the machine is far too busy.
func (k *soaker) cut(s *session, random *rand.Rand) error {
	name, what := k.file(random)
	if _, err := s.say(fmt.Sprintf("ALLO %d", len(what)), 200); err != nil {
		return err
	}
	data, err := s.Open("STOR " + name)
	if err != nil {
		return err
	}
	defer data.Close()
	if _, err := data.Write(what[:random.IntN(len(what))]); err != nil {
		return err
	}
	switch random.IntN(3) {
	case 0:
		if err := s.Send("ABOR"); err != nil {
			return err
		}
		for range 2 { // that of the transfer, that of ABOR
			if _, err := s.ReadReply(); err != nil {
				return err
			}
		}
		return nil
	case 1:
		s.Conn.Close()
	default:
		_ = data.(*net.TCPConn).SetLinger(0)
		data.Close()
		if _, err := s.ReadReply(); err != nil {
			return err
		}
	}
	return errors.New("cut")
}

// stall is an upload without an end, which the server gives up.
func (k *soaker) stall(s *session, random *rand.Rand) error {
	name, what := k.file(random)
	data, err := s.Open("STOR " + name)
	if err != nil {
		return err
	}
	defer data.Close()
	if _, err := data.Write(what[:len(what)/2]); err != nil {
		return err
	}
	r, err := s.ReadReply()
	if err == nil && r.Code == 226 {
		k.complain("an upload that stood still was published: %v", r)
	}
	return err
}

func (k *soaker) read(s *session, random *rand.Rand) error {
	name, _ := k.file(random)
	file, err := s.Retrieve("RETR " + name)
	if err != nil {
		return err
	}
	if !isPatterned(file) {
		k.complain("%s is not whole: %d bytes, %.40q", name, len(file), file)
	}
	return nil
}

func (k *soaker) look(s *session, random *rand.Rand) error {
	lines := []string{"MLSD /pub", "LIST /locks", "NLST /pub/file-*", "LIST -al"}
	if _, err := s.Retrieve(lines[random.IntN(len(lines))]); err != nil {
		return err
	}
	_, err := s.say("SITE LOCKS", 211)
	return err
}

// replace is the old way to publish.
func (k *soaker) replace(s *session, random *rand.Rand) error {
	name, what := k.file(random)
	temporary := fmt.Sprintf("/pub/mine-%d", random.Uint32())
	if err := s.Store(temporary, what); err != nil {
		return err
	}
	if _, err := s.say("RNFR "+temporary, 350); err != nil {
		return err
	}
	_, err := s.say("RNTO "+name, 250)
	return err
}

func (k *soaker) directory(s *session, random *rand.Rand) error {
	name := fmt.Sprintf("/pub/dir-%d", random.Uint32())
	if _, err := s.say("MKD "+name, 257); err != nil {
		return err
	}
	_, err := s.say("RMD "+name, 250)
	return err
}
