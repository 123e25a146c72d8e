package integration

import (
	"os"
	"syscall"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// The server's user is in the group of a web server whose file it replaces, and may not give the file to the owner.
func TestAnUploadKeepsTheGroupAndReportsTheLostOwner(t *testing.T) {
	t.Parallel()
	harness.Need(t, "setpriv")
	if os.Getuid() != 0 {
		t.Skip("only root can make the file of another user")
	}
	s := newServer(t, defaults)
	s.through = []string{"setpriv", "--bounding-set=-chown", "--groups=0,33"}
	s.start()
	s.write("/page", "old")
	if err := os.Chown(s.path("/page"), 1, 33); err != nil {
		t.Fatal(err)
	}
	c := s.session(account)
	data, err := c.Open("STOR /page")
	if err != nil {
		t.Fatal(err)
	}
	data.Close()
	c.WantReply(226, "0 bytes received; not kept: owner")
	s.log.AwaitLine(t, "lost properties", "path=/page", "lost=owner")
	info, err := os.Stat(s.path("/page"))
	if err != nil || info.Sys().(*syscall.Stat_t).Gid != 33 {
		t.Errorf("%+v, %v", info, err)
	}
}
