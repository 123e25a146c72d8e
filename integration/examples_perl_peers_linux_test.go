package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
	"github.com/ftplockd/ftplockd/integration/peers"
)

// What the article says works with any FTP server. Their accounts may write below /pub only, so the programs are told to go there.
func TestPerlPhoneListProgramsWorkWithOtherServers(t *testing.T) {
	t.Parallel()
	harness.Need(t, "perl")
	for _, name := range peers.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startPeer(t, name, false)
			o, dir := newObserver(t, "Net::FTP::mkdir Net::FTP::rmdir"), t.TempDir()
			var crowd []*exec.Cmd
			for i := range 8 {
				list := filepath.Join(dir, fmt.Sprint("boss", i))
				writeFile(t, list, []byte(phoneList(filepath.Base(list))))
				cmd := perlExample(t, p.Address, p.User, p.Password, "perl-netlock/uploader.pl", list, "0.05")
				if i%2 == 1 {
					cmd = perlExample(t, p.Address, p.User, p.Password, "perl-netlock/downloader.pl", list, "0.05")
				}
				cmd.Env = append(cmd.Env, "OBSERVE_DIR=/pub")
				crowd = append(crowd, cmd)
			}
			for _, r := range o.crowd(t, crowd[:1], func() {}) { // there has to be a list
				if r.status != 0 {
					t.Fatal(r.out)
				}
			}
			for i, r := range o.crowd(t, crowd[1:], func() {}) {
				if r.status != 0 {
					t.Errorf("%v: exit status %d: %s", crowd[i+1].Args[1:], r.status, r.out)
				}
			}
			o.check(8)
			for i := range 8 {
				if got, err := os.ReadFile(filepath.Join(dir, fmt.Sprint("boss", i))); err != nil || !wholeList(string(got)) {
					t.Errorf("%d bytes, not one list: %v", len(got), err)
				}
			}
		})
	}
}
