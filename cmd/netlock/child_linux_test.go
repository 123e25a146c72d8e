package main

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestAZombieDoesNotKeepTheGroupAlive adopts the processes that the command leaves, and does not wait for them: so does process 1 of many containers.
func TestAZombieDoesNotKeepTheGroupAlive(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	defer unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
	c, err := startChild("/bin/sh", []string{"sh", "-c", "sleep 100 & exit 3"}, os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	if e := <-c.events; e.status != 3 {
		t.Fatalf("%+v", e)
	}
	c.close()
	if !c.groupAlive() {
		t.Error("the group is dead while its sleep runs")
	}
	c.kill()
	for range 1000 {
		if !c.groupAlive() {
			_, err := unix.Wait4(-c.pid, nil, 0, nil)
			if err != nil {
				t.Error("the zombie is gone:", err)
			}
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("the group is alive after the death of all its processes")
}
