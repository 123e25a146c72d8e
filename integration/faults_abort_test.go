package integration

import (
	"strings"
	"syscall"
	"testing"
)

// TestClientsAbort interrupts clients that abort their upload then. tnftp does not: it closes the data connection, as at the end of each upload.
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
			c := s.send(t, u, "I", 0)
			c.signal(t, syscall.SIGINT)
			c.discarded(`ABOR|hung up|was cut`)
			c.complains()
			if u.name == "ftplib" && !strings.Contains(c.out.String(), "426 "+c.path+": aborted by ABOR") {
				t.Errorf("it was told %s", c.out)
			}
		})
	}
}
