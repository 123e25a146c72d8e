package locksmith

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pair is a wire whose other end says the text and then nothing more.
func pair(t *testing.T, text string) (*wire, net.Conn) {
	ours, theirs := net.Pipe()
	go func() {
		_, _ = io.WriteString(theirs, text)
		_, _ = io.Copy(io.Discard, theirs)
	}()
	w := &wire{conn: ours, timeout: time.Second}
	t.Cleanup(func() {
		_ = w.Close()
		_ = theirs.Close()
	})
	return w, theirs
}

func TestRepliesAreReadWhole(t *testing.T) {
	for text, want := range map[string]reply{
		"200 ok\r\n":                      {200, []string{"ok"}},
		"200\n":                           {200, []string{""}},
		"211-a\r\n b\r\n212 c\r\n211 d\n": {211, []string{"a", " b", "212 c", "d"}},
		"250-a\r\n250-b\r\n250 c\r\n":     {250, []string{"a", "250-b", "c"}},
	} {
		w, _ := pair(t, text)
		if r, err := w.await(t.Context(), 0); err != nil || !reflect.DeepEqual(r, want) {
			t.Errorf("%q: %+v, %v", text, r, err)
		}
	}
	for _, text := range []string{"421 closing\r\n", "hello\r\n", "999 what\r\n", "20 x\r\n", strings.Repeat("a", longestReply) + "aa"} {
		w, _ := pair(t, text)
		if r, err := w.await(t.Context(), 0); err == nil || w.broken() == nil {
			t.Errorf("%q is the reply %v", shortened(text), r)
		}
	}
}

func TestTheLibraryIsGivenOneLineAtATime(t *testing.T) {
	w, _ := pair(t, "200 one\r\n200 two\r\n")
	buf := make([]byte, 4096)
	if n, err := w.Read(buf); err != nil || string(buf[:n]) != "200 one\r\n" {
		t.Fatalf("%q, %v", buf[:n], err)
	}
	if r, err := w.await(t.Context(), 0); err != nil || r.text() != "two" {
		t.Errorf("%v, %v", r, err)
	}
}

func TestAReplyCanBeAwaitedAgainAfterAnInterruption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		go func() {
			_, _ = io.WriteString(theirs, "211-fir")
			time.Sleep(2 * time.Second)
			_, _ = io.WriteString(theirs, "st\r\n211 last\r\n")
			_ = theirs.Close()
		}()
		w := &wire{conn: ours, timeout: time.Minute}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := w.await(ctx, 0); err != errInterrupted {
			t.Fatal(err)
		}
		if _, err := w.await(ctx, 0); err != errInterrupted {
			t.Fatalf("interrupted already: %v", err)
		}
		r, err := w.await(t.Context(), 0)
		if err != nil || r.text() != "first last" {
			t.Errorf("%v, %v", r, err)
		}
		_ = w.Close()
	})
}

func TestWhatIsSaidUnaskedEndsTheConnection(t *testing.T) {
	w, _ := pair(t, "200 ok\r\n421 idle for too long\r\n")
	if _, err := w.await(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	_, err := w.ask(t.Context(), "MKD /a")
	if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "421 idle for too long") || w.sent {
		t.Error(err, w.sent)
	}
}

func TestALineEndIsNotSent(t *testing.T) {
	w, _ := pair(t, "")
	if _, err := w.ask(t.Context(), "MKD a\r\nDELE b"); !errors.Is(err, ErrRefused) || w.broken() != nil {
		t.Error(err)
	}
	for _, s := range []Server{{Address: "h", User: "a\r\nDELE b"}, {Address: "h", Password: "a\n"}, {Address: "h", Dir: "a\nb"}} {
		if _, err := s.resolve(); err == nil {
			t.Errorf("%+v is taken", s)
		}
	}
}

func TestNothingThatWasSaidBeforeTLSCountsAfterIt(t *testing.T) {
	e := &endpoint{tls: &tls.Config{}}
	if err := e.handshake(t.Context(), &wire{buf: []byte("230 in\r\n")}); !errors.Is(err, ErrTLS) {
		t.Error(err)
	}
}

func TestAddresses(t *testing.T) {
	for address, want := range map[string]string{
		"host": "host:21", "host:2121": "host:2121", "10.0.0.1": "10.0.0.1:21", "::1": "[::1]:21", "[::1]": "[::1]:21",
		"[::1]:2121": "[::1]:2121", "fe80::1%eth0": "[fe80::1%eth0]:21",
		"": "", "host:": "", ":21": "", "[::1": "", "[]": "",
	} {
		e, err := Server{Address: address}.resolve()
		if want == "" {
			if !errors.Is(err, ErrUnreachable) {
				t.Errorf("%q: %v", address, err)
			}
			continue
		}
		if err != nil || e.Address != want {
			t.Errorf("%q is %v, %v", address, e, err)
		}
	}
	e, err := Server{Address: "host", TLS: TLSImplicit}.resolve()
	if err != nil || e.Address != "host:990" || e.tls.ServerName != "host" || e.tls.ClientSessionCache == nil || e.User != "anonymous" {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestNamesInQuotes(t *testing.T) {
	for text, want := range map[string]string{
		`"/a" created`: "/a", `"/a ""b"" c" locked`: `/a "b" c`, `/a created`: "", `"/a`: "", `""`: "",
	} {
		if got := (reply{257, []string{text}}).quotedName(); got != want {
			t.Errorf("%s is %q", text, got)
		}
	}
}

func TestLinesOfSiteLocks(t *testing.T) {
	now := time.Now()
	i, ok := lockOfLine("/l/a b: shared by eve@10.0.0.6 for 1m5s, never expires, token 7; shared by bob@10.0.0.5 for 5s, expires in 1s, token 9; 2 in the queue", now)
	want := Info{Path: "/l/a b", Held: true, Since: now.Add(-65 * time.Second), Waiting: 2, Holders: []Holder{
		{Owner: "eve@10.0.0.6", Held: 65 * time.Second, Shared: true, Token: 7},
		{Owner: "bob@10.0.0.5", Held: 5 * time.Second, Expires: time.Second, Shared: true, Token: 9},
	}}
	if !ok || !reflect.DeepEqual(i, want) {
		t.Errorf("%+v", i)
	}
	if i, ok := lockOfLine("what is this", now); ok {
		t.Errorf("%+v", i)
	}
}
