package integration

import (
	"net"
	"strings"
	"syscall"
	"testing"
)

// RFC 959 section 4.1.3: the client sends Telnet's IP and a Synch before ABOR, or ABOR alone.
func TestAborDiscardsAnUpload(t *testing.T) {
	t.Parallel()
	s := startServer(t, defaults)
	for _, a := range []struct{ name, urgent, rest string }{
		{"alone", "", "ABOR\r\n"},
		{"lower case", "", "abor\n"},
		{"after IP and DM", "", "\xff\xf4\xff\xf2ABOR\r\n"},
		{"DM urgent", "\xff\xf4\xff\xf2", "ABOR\r\n"},
		{"IAC urgent, as Net::FTP and BSD clients do", "\xff\xf4\xff", "\xf2ABOR\r\n"},
		{"all of it urgent, as ftplib does", "ABOR\r\n", ""},
	} {
		t.Run(a.name, func(t *testing.T) {
			s.write("target", "old")
			c := s.session(account)
			data := c.begin("STOR /target")
			if _, err := data.Write(make([]byte, 1000)); err != nil {
				t.Fatal(err)
			}
			urge(t, c.Conn.(*net.TCPConn), a.urgent)
			if _, err := c.Conn.Write([]byte(a.rest)); err != nil {
				t.Fatal(err)
			}
			c.WantReply(426, "/target: aborted by ABOR")
			c.WantReply(226)
			c.Want(257, "PWD")
			if got, left := s.read("target"), s.unfinished(); got != "old" || len(left) > 0 {
				t.Errorf("published %q, left over: %v", got, left)
			}
		})
	}
	s.log.Await(t, `msg="upload discarded" path=/target bytes=`, 6)
}

// urge sends urgent data.
func urge(t *testing.T, conn *net.TCPConn, text string) {
	t.Helper()
	if text == "" {
		return
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var serr error
	if err := raw.Write(func(fd uintptr) bool {
		serr = syscall.Sendto(int(fd), []byte(text), syscall.MSG_OOB, nil)
		return true
	}); err != nil || serr != nil {
		t.Fatal(err, serr)
	}
}

// Clients that abort an upload when their user interrupts them. tnftp is none: it closes the data connection and says
// nothing, which is how every upload ends.
func TestClientsAbort(t *testing.T) {
	t.Parallel()
	s := startServer(t, hangUpLate+defaults)
	for _, u := range []uploader{
		{name: "Net::FTP", need: "perl", command: scriptUpload("perl", "send.pl")},
		{name: "ftplib", need: "python3", command: scriptUpload("python3", "send.py")},
		{name: "lftp", need: "lftp", command: sender("lftp").command},
		{name: "ncftp", need: "ncftpput", command: sender("ncftp").command},
	} {
		t.Run(u.name, func(t *testing.T) {
			t.Parallel()
			c := s.send(t, u, s.v4, "I", 0)
			c.signal(t, syscall.SIGINT)
			c.discarded(`ABOR|hung up|was cut`)
			c.complains()
			if u.name == "ftplib" && !strings.Contains(c.out.String(), "426 "+c.path+": aborted by ABOR") {
				t.Errorf("it was told %s", c.out)
			}
		})
	}
}
