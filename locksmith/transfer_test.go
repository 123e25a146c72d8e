package locksmith

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

const (
	passive  = "> EPSV\n< 229 here (|||2000|)\n"
	part     = "/f.*.part"
	announce = "> ALLO 3\n< 200 ok\n"
	stored   = passive + "> STOR " + part + "\n< 150 go\nstored abc\n< 226 done\n> SIZE " + part + "\n< 213 3\n"
)

var held42 = info("/a", "42", "mine=session;")

// slow is a reader that ends late.
type slow struct {
	io.Reader
	d time.Duration
}

func (s *slow) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err == io.EOF {
		time.Sleep(s.d)
	}
	return n, err
}

var errSource = errors.New("the source failed")

func TestPut(t *testing.T) {
	stor := passive + "> STOR /f\n< 150 go\nstored abc\n"
	temp := passive + "> STOR " + part + "\n< 150 go\nstored abc\n< 226 done\n"
	rename := "> RNFR " + part + "\n< 350 to?\n> RNTO /f\n"
	remove := "> DELE " + part + "\n< 250 ok\n"
	broken := "> STOR " + part + "\n< 150 go\nstored ab\n"
	for name, c := range map[string]struct {
		lock, transfer string // the two connections; "": there is none
		source         io.Reader
		want           error
		says           string
		lost           bool
		isLocal        bool
	}{
		"stores under a temporary name elsewhere, and renames": {
			lock: asOthers() + asked + same + same + same + sendRMD, transfer: asOthers() + announce + stored + rename + "< 250 ok\n" + bye,
		},
		"removes the temporary file when it cannot be renamed": {
			lock:     asOthers() + asked + same + same + same + same + sendRMD,
			transfer: asOthers() + announce + stored + rename + "< 550 no\n" + remove + bye,
			want:     ErrRefused, says: "refused: /f: the server replied 550 no",
		},
		"reports a rename without a reply": {
			lock: asOthers() + asked + same + same + same + sendRMD, transfer: asOthers() + announce + stored + rename,
			want: ErrUnreachable,
		},
		"renames no incomplete file": {
			lock: asOthers() + asked + same + same + sendRMD, transfer: asOthers() + announce + temp + "> SIZE " + part + "\n< 213 2\n" + remove + bye,
			want: ErrTransfer, says: "/f: 3 bytes were sent and 2 arrived",
		},
		"renames nothing when the lock was lost meanwhile": {
			lock: asOthers() + asked + same + "> MDTM /a\n< 550 gone\n" + bye, transfer: asOthers() + announce + stored + remove + bye,
			want: ErrLost, lost: true,
		},
		"sends nothing when the lock was lost before": {
			lock: asOthers() + asked + "> MDTM /a\n< 550 gone\n" + bye, want: ErrLost, lost: true,
		},
		"does not end the file when the lock was lost meanwhile": {
			lock: asLocks() + never42 + held42 + lost + bye, transfer: asLocks() + announce + stor,
			want: ErrLost, lost: true,
		},
		"aborts when the source is shorter than announced": {
			lock: asOthers() + asked + same + same + sendRMD, transfer: asOthers() + announce + passive + broken + "< 426 cut\n" + remove + bye,
			source: strings.NewReader("ab"), want: ErrLocal, says: "/f: the source has 2 bytes instead of the announced 3",
		},
		"aborts when the source fails": {
			lock: asOthers() + asked + same + same + sendRMD, transfer: asOthers() + announce + passive + broken + "< 426 cut\n" + remove + bye,
			source: io.MultiReader(strings.NewReader("ab"), iotest.ErrReader(errSource)), want: errSource, says: "/f: the source failed", isLocal: true,
		},
		"reports that the server cannot do it now": {
			lock: asLocks() + never42 + held42 + sendRMD, transfer: asLocks() + announce + passive + "> STOR /f\n< 450 /f: busy\n" + bye,
			want: ErrTransfer, says: "/f: the server replied 450 /f: busy",
		},
		"sends nothing where there is no room": {
			lock: asLocks() + never42 + held42 + sendRMD, transfer: asLocks() + "> ALLO 3\n< 452 full\n",
			want: ErrRefused,
		},
		"reports that the lock was taken away, when the server refuses it": {
			lock: asLocks() + never42 + held42 + held42 + lost + bye, transfer: asLocks() + announce + stor + "< 550 /f: protected by the lock /a, which was given back meanwhile\n",
			want: ErrLost, says: "the lock was lost: /a: taken away 1s ago", lost: true,
		},
		"reports why it was refused": {
			lock: asLocks() + never42 + held42 + held42 + sendRMD, transfer: asLocks() + announce + passive + "> STOR /f\n< 550 /f: protected by the lock /b, which you do not hold\n",
			want: ErrRefused, says: "refused: /f: the server replied 550 /f: protected by the lock /b, which you do not hold",
		},
	} {
		t.Run(name, func(t *testing.T) {
			scripts := []string{c.lock, c.transfer}
			if c.transfer == "" {
				scripts = scripts[:1]
			}
			inBubble(t, scripts, func(t *testing.T, s *scripted) {
				l := mustAcquire(t, s.options())
				source := c.source
				if source == nil {
					source = strings.NewReader("abc")
				}
				err := l.Put(t.Context(), "/f", source, 3)
				oneLine(t, err)
				if local := c.isLocal || c.want == ErrLocal; local != errors.Is(err, ErrLocal) || local && errors.Is(err, ErrTransfer) {
					t.Errorf("ErrLocal: %v", err)
				}
				if c.want != nil && !errors.Is(err, c.want) || c.says != "" && (err == nil || err.Error() != c.says) || c.want == nil && c.says == "" && err != nil {
					t.Error(err)
				}
				if err := l.Release(t.Context()); c.lost != errors.Is(err, ErrLost) || !c.lost && err != nil {
					t.Errorf("released with %v", err)
				}
			})
		})
	}
}

func TestGet(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		want   error
		also   error
		refuse bool // the writer fails
		got    string
		whole  bool // it succeeds
	}{
		"downloads what has no known size": {script: "> SIZE /f\n< 550 no\n" + passive + "> RETR /f\n< 150 go\ndata abc\n< 226 done\n", got: "abc", whole: true},
		"reports that the writer failed":   {script: "> SIZE /f\n< 213 3\n" + passive + "> RETR /f\n< 150 go\ndata abc\n", refuse: true, want: errSource, also: ErrLocal},
		"reports that the file is cut off": {script: "> SIZE /f\n< 213 3\n" + passive + "> RETR /f\n< 150 go\ndata ab\n< 226 done\n" + bye, got: "ab", want: io.ErrUnexpectedEOF, also: ErrTransfer},
		"reports that the server aborted":  {script: "> SIZE /f\n< 550 no\n" + passive + "> RETR /f\n< 150 go\ndata ab\n< 550 disk error\n", got: "ab", want: ErrRefused},
	} {
		t.Run(name, func(t *testing.T) {
			transfer := asLocks() + c.script
			if c.whole {
				transfer += bye
			}
			lock := asLocks() + never42 + held42
			if c.want == ErrRefused {
				lock += held42
			}
			inBubble(t, []string{lock + sendRMD, transfer}, func(t *testing.T, s *scripted) {
				l := mustAcquire(t, s.options())
				var got bytes.Buffer
				var to io.Writer = &got
				if c.refuse {
					to = refusing{}
				}
				n, err := l.Get(t.Context(), "/f", to)
				oneLine(t, err)
				if !errors.Is(err, c.want) || c.also != nil && !errors.Is(err, c.also) || got.String() != c.got || n != int64(len(c.got)) {
					t.Errorf("%q, %d, %v", got.String(), n, err)
				}
				if err := l.Release(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

type refusing struct{}

func (refusing) Write([]byte) (int, error) { return 0, errSource }

func TestReleaseAbortsATransfer(t *testing.T) {
	inBubble(t, []string{asLocks() + never42 + held42 + sendRMD, asLocks() + passive + "> STOR /f\n< 150 go\nstored abc\n"},
		func(t *testing.T, s *scripted) {
			l := mustAcquire(t, s.options())
			put := make(chan error, 1)
			go func() { put <- l.Put(t.Context(), "/f", &slow{strings.NewReader("abc"), 3 * time.Second}, -1) }()
			time.Sleep(time.Second)
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
			if err := <-put; !errors.Is(err, ErrReleased) || errors.Is(err, ErrLost) {
				t.Error(err)
			}
		})
}

// halves is a connection whose two directions end one after the other, as TCP's do.
type halves struct{ net.Conn }

func (halves) CloseWrite() error { return nil }

// A server may leave the data connection of a refused transfer open.
func TestOnlyAUsedDataConnectionIsReadToItsEnd(t *testing.T) {
	for used, want := range map[bool]time.Duration{false: 0, true: closeTimeout} {
		synctest.Test(t, func(t *testing.T) {
			ours, theirs := net.Pipe()
			defer theirs.Close()
			l := &timedConn{Conn: halves{ours}, data: true, limit: time.Hour}
			if used {
				go theirs.Read(make([]byte, 1))
				if _, err := l.Write([]byte("x")); err != nil {
					t.Fatal(err)
				}
			}
			began := time.Now()
			if err := l.Close(); err != nil || time.Since(began) != want {
				t.Errorf("used %t: closed after %v, want %v; %v", used, time.Since(began), want, err)
			}
		})
	}
}
