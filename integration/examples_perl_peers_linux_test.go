package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

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

func TestPerlCleanerWorksWithOtherServers(t *testing.T) {
	t.Parallel()
	harness.Need(t, "perl")
	for _, name := range peers.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startPeer(t, name, false)
			pub := filepath.Join(p.Root, "pub")
			c, _, err := connect(p.Address)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Conn.Close()
			c.T = t
			c.Want(331, "USER "+p.User)
			c.Want(230, "PASS "+p.Password)
			now := time.Now()
			for name, age := range map[string]time.Duration{
				"old_lock": 8 * time.Minute, "older_lock": 300 * 24 * time.Hour, "young_lock": 4 * time.Minute, "new_lock": 0,
				"full_lock": time.Hour * 3, "old_dir": 8 * time.Minute, "future_lock": -time.Hour,
			} {
				c.Want(257, "MKD /pub/"+name)
				if name == "full_lock" {
					writeFile(t, filepath.Join(pub, name, "file"), nil)
				}
				if err := os.Chtimes(filepath.Join(pub, name), now.Add(-age), now.Add(-age)); err != nil {
					t.Fatal(err)
				}
			}
			r := finish(t, perlExample(t, p.Address, p.User, p.Password, "perl-netlock/cleaner.pl", "6m", "/pub"))
			lines := slices.Sorted(strings.Lines(r.out))
			if r.status != 0 || len(lines) != 3 || !strings.HasPrefix(lines[0], "cannot remove /pub/full_lock: ") ||
				lines[1] != "removed /pub/old_lock\n" || lines[2] != "removed /pub/older_lock\n" {
				t.Errorf("exit status %d: %q", r.status, lines)
			}
			if left := dirNames(t, pub); !slices.Equal(left, []string{"full_lock", "future_lock", "new_lock", "old_dir", "young_lock"}) {
				t.Errorf("left: %q", left)
			}
		})
	}
}
