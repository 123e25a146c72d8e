package driver

import (
	"bytes"
	"errors"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// fuzzStages are the states of a session before arbitrary lines.
var fuzzStages = []struct {
	account string   // "": not logged in
	first   []string // commands
	upload  bool     // a STOR is under way, and ends after the last line
}{
	{},
	{first: []string{"USER phoneacc"}},
	{account: "phoneacc"},
	{account: "reader"},
	{account: "bob"}, // at home below the root
	{account: "phoneacc", first: []string{"TYPE I", "PASV"}},
	{account: "phoneacc", first: []string{"PASV", "STOR /under-way"}, upload: true},
	{account: "phoneacc", first: []string{"RNFR /f"}},
	{account: "phoneacc", first: []string{"TYPE I", "REST 2", "EPSV"}},
	{account: "phoneacc", first: []string{"MKD /locks/mine"}},
}

// marker is a command with a reply of its own.
const marker, markerReply = "HELP the-very-last", "502 unknown command 'THE-VERY-LAST'"

// talker sends lines without waiting for replies.
type talker struct {
	*conn
	data *net.TCPConn // of PASV or EPSV, not used yet
}

// final reads up to the next final reply (RFC 959 section 4.2); io.EOF if the server closed the connection. It opens each data
// connection that a reply announces, sends nothing there and reads everything.
func (k *talker) final() (string, error) {
	for {
		reply, err := k.ReadReply()
		r := reply.String()
		switch {
		case err != nil:
			return r, err
		case harness.Port(r) > 0:
			k.offered(r)
		case r[0] == '1' && k.data != nil: // all that the transfer sends
			k.data.SetDeadline(time.Now().Add(patience))
			k.data.CloseWrite()
			_, _ = io.Copy(io.Discard, k.data) // the reply reports the end
			k.hangUp()
		}
		if r[0] != '1' {
			return r, nil
		}
	}
}

// offered connects to a passive port. A later command may have closed it already.
func (k *talker) offered(r string) {
	k.hangUp()
	if c, err := net.DialTCP("tcp", nil, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: harness.Port(r)}); err == nil {
		k.data = c
	}
}

func (k *talker) hangUp() {
	if k.data != nil {
		k.data.Close()
		k.data = nil
	}
}

// FuzzCommands sends arbitrary lines in each of the fuzzStages of a session: each complete line gets exactly one final reply, none
// contains a path of the server's machine, no file outside the root changes, and the session goes on unless the reply was 221 or 421.
func FuzzCommands(f *testing.F) {
	deep := strings.Repeat("/d", 1500)
	for i, lines := range []string{
		"NOOP\r\nPWD\nSYST\r\n",
		"CWD ..\nCWD ../../..\nSTOR ../../sentinel\nDELE ../sentinel\nRNTO ../../moved\nMKD ../x\n",
		"EPSV\nRETR /../../sentinel\nPASV\nSTOR //../..//sentinel\nPASV\nAPPE /out/sentinel\nRMD /..\n",
		"PASV\nLIST -la /\nEPSV\nNLST *\nPASV\nMLSD ..\nSTAT /\nSTAT\nMLST /f\n",
		"MKD a\x00b\r\nSTOR a\rb\r\nDELE \r\r\n\xff\xf4\xff\xf2ABOR\r\n\n \n",
		"MKD " + deep + "\nCWD " + deep + "\nPASV\nSTOR " + deep + "/f\nRNFR " + deep + "\n",
		"MKD /" + strings.Repeat("x", 256) + "\nSTOR " + strings.Repeat("y", 5000) + "\n" + strings.Repeat("z", 9000) + "\n",
		"RNFR /f\nRNTO /g\nRNTO /h\nRNFR /../f\nRNTO /dir/../../f\n",
		"MKD /locks/a\nMKD /locks/a\nSITE WAIT 9\nMKD /locks/a\nPASV\nSTOR /locks/a/note\nRMD /locks/a\nRMD /locks/a\n",
		"PASV\nREST 1\nRETR /f\nEPSV 1\nREST 99999\nSTOR /f\nPASV\nALLO 5\nSTOR /g\nSTOU\nPASV\nSTOU\n",
		"USER reader\nPASS wrong\nPASS\nUSER\nUSER other\nPASS secret\nPWD\n",
		"PASV\nEPSV ALL\nPASV\nPORT 127,0,0,1,1,1\nEPRT |1|127.0.0.1|257|\nEPSV 9\n",
		"SITE CHMOD 777 /../sentinel\nSITE MKDIR /../x\nSITE RMDIR /..\nMFMT 20200101000000 /../sentinel\nCOMB /../sentinel /f\n",
		"QUIT\nNOOP\n", "ABOR\nSTAT\nABOR\nPASV\nABOR\n",
		"PASV\nSTOR .ftplockd-x\nRETR /.locks.json\nDELE /self\nSITE LOCKS [\nOPTS HASH x\nHASH /f\nXMD5 /f\nAVBL /..\n",
	} {
		f.Add(uint8(i), []byte(lines)) // the fuzzer tries the other stages
	}
	f.Fuzz(func(t *testing.T, at uint8, lines []byte) {
		if i := bytes.LastIndexByte(lines, '\n'); i >= 0 && len(lines) < 64<<10 {
			talk(t, int(at)%len(fuzzStages), lines[:i+1])
		}
	})
}

// talk plays one of the fuzzStages, the lines and the marker.
func talk(t *testing.T, at int, lines []byte) {
	s := start(t, func(o *setup) {
		o.settings.FTP.Active = false // no connections to other programs on this machine
		o.directories = len(lines)%2 == 0
	})
	s.write("/f", "content")
	s.mkdir("/dir")
	s.link(filepath.Dir(s.root), "/out")
	s.link("self", "/self")
	s.write("../sentinel", "untouched")
	before := onDisk(t, filepath.Dir(s.root))
	stage := fuzzStages[at]
	k := &talker{conn: s.dial()}
	defer k.hangUp()
	if stage.account != "" {
		k.login(stage.account)
	}
	for _, command := range stage.first {
		r := k.ask(command)
		if r[0] > '3' {
			t.Fatalf("%s: %s", command, r)
		}
		if harness.Port(r) > 0 {
			k.offered(r)
		}
	}
	var under net.Conn
	if stage.upload {
		under, k.data = k.data, nil
	}
	k.check(lines, under)
	s.wantContent("../sentinel", "untouched")
	if after := onDisk(t, filepath.Dir(s.root)); !slices.Equal(after, before) {
		t.Errorf("beside the root there was %q, and now %q", before, after)
	}
}

// check sends everything and counts the replies. A transfer under way has one more.
func (k *talker) check(lines []byte, under net.Conn) {
	sent := make(chan error, 1)
	go func() {
		_, err := k.Conn.Write(append(bytes.Clone(lines), marker+"\r\n"...))
		if under != nil {
			err = errors.Join(err, under.Close())
		}
		sent <- err
	}()
	defer func() {
		k.Conn.Close() // this ends the sending of an unread rest
		<-sent
	}()
	want := 0
	for line := range bytes.Lines(lines) {
		if bytes.HasSuffix(line, []byte("\n")) && len(bytes.TrimRight(line, "\r\n")) > 0 { // an empty line has no reply
			want++
		}
	}
	if under != nil {
		want++
	}
	s := k.server
	secrets := []string{s.root, s.state, filepath.Base(filepath.Dir(s.root)), "openat", "/tmp/", "goroutine "}
	for got := 0; ; got++ {
		r, err := k.final()
		if err != nil {
			k.T.Fatalf("after %d of %d replies: %v", got, want, err)
		}
		for _, secret := range secrets {
			if strings.Contains(r, secret) && !bytes.Contains(bytes.ToLower(lines), []byte(strings.ToLower(secret))) {
				k.T.Errorf("a reply shows %q: %q", secret, r)
			}
		}
		switch {
		case strings.HasPrefix(r, markerReply):
			if got != want {
				k.T.Errorf("%d final replies to %d lines", got, want)
			}
			return
		case strings.HasPrefix(r, "221 "), strings.HasPrefix(r, "421 "):
			if r, err := k.final(); err == nil {
				k.T.Errorf("after the good-bye: %q", r)
			}
			return
		case got == want:
			k.T.Fatalf("one reply too many: %q", r)
		}
	}
}
