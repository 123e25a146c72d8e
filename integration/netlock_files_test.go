package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNetlockTransferThatIsCutOffChangesNothing(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"get", "put"} {
		s := startServer(t, longLived)
		s.errorsExpected = true
		address, _ := startCutter(t, s.v4, 300000, nil)
		dir := t.TempDir()
		local, sent := filepath.Join(dir, "phone.tsv"), strings.Repeat("x", 1<<20)
		args := []string{"get", lockAt(address), "phone.tsv", local}
		if command == "get" {
			s.write("phone.tsv", sent)
			writeFile(t, local, []byte("old"))
		} else {
			s.write("phone.tsv", "old")
			writeFile(t, local, []byte(sent))
			args = []string{"put", lockAt(address), local, "phone.tsv"}
		}
		if r := finish(t, locker(t, "", args...)); r.status != 74 || strings.Count(r.out, "\n") != 1 {
			t.Errorf("%s: %+v", command, r)
		}
		if command == "get" {
			wantFile(t, local, "old")
		} else {
			s.wantFile(t, "phone.tsv", "old")
		}
		if all, err := os.ReadDir(dir); err != nil || len(all) != 1 {
			t.Errorf("%s: left over: %v, %v", command, all, err)
		}
		s.session("other").wantFree("/phone_lock", 0)
	}
}

func TestNetlockGetWhoseLockIsLostReplacesNothing(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived)
	s.write("phone.tsv", strings.Repeat("x", 1<<20))
	hold := make(chan struct{})
	address, reached := startCutter(t, s.v4, 300000, hold)
	local := filepath.Join(t.TempDir(), "phone.tsv")
	writeFile(t, local, []byte("old"))
	p := launch(t, locker(t, "", "get", lockAt(address), "phone.tsv", local))
	<-reached // some of it has come
	s.session("boss").Breaks("/phone_lock")
	close(hold)
	p.ended(t, 79)
	wantFile(t, local, "old")
	if all, err := os.ReadDir(filepath.Dir(local)); err != nil || len(all) != 1 {
		t.Errorf("beside the file there are %v, %v", all, err)
	}
}
