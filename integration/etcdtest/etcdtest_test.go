//go:build linux

package etcdtest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// put writes the key through etcd's gateway.
func put(to string, value int, within time.Duration) error {
	client := http.Client{Timeout: within, Transport: &http.Transport{DisableKeepAlives: true}}
	body := fmt.Sprintf(`{"key": "YQ==", "value": "%04d"}`, value) // both are base64
	r, err := client.Post("http://"+to+"/v3/kv/put", "application/json", strings.NewReader(body))
	if err != nil {
		return err
	}
	return r.Body.Close()
}

// version returns the number of times that the key was written.
func version(t *testing.T, c *Cluster) string {
	t.Helper()
	var reply struct{ Kvs []struct{ Version string } }
	if err := c.ask(0, "/v3/kv/range", `{"key": "YQ=="}`, &reply); err != nil {
		t.Fatal(err)
	}
	if len(reply.Kvs) == 0 {
		return "0"
	}
	return reply.Kvs[0].Version
}

func TestRelayCutsDelaysHoldsBackAndHeals(t *testing.T) {
	t.Parallel()
	c := Start(t, 1)
	r := c.Relays()[0]
	const soon, never = 20 * time.Second, 300 * time.Millisecond
	want := func(what, versions string) {
		t.Helper()
		for end := time.Now().Add(soon); version(t, c) != versions; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: written %s times, want %s", what, version(t, c), versions)
			}
		}
	}
	if err := put(r.Endpoint(), 1, soon); err != nil {
		t.Fatal(err)
	}
	want("a request arrives", "1")

	r.Cut()
	if put(r.Endpoint(), 2, never) == nil {
		t.Error("a cut relay delivers a request")
	}
	r.Heal()
	if err := put(r.Endpoint(), 3, soon); err != nil {
		t.Error("healed: ", err)
	}
	want("a request during the cut is lost", "2")

	r.Delay(50 * time.Millisecond)
	begin := time.Now()
	if err := put(r.Endpoint(), 4, soon); err != nil {
		t.Error("delayed: ", err)
	}
	if took := time.Since(begin); took < 100*time.Millisecond {
		t.Errorf("a request and its reply took %v", took)
	}
	want("a delayed request arrives", "3")

	r.HoldReplies()
	if put(r.Endpoint(), 5, never) == nil {
		t.Error("a reply came in spite of HoldReplies")
	}
	want("the request arrived", "4")

	r.HoldBack()
	done := make(chan error, 1)
	go func() { done <- put(r.Endpoint(), 6, soon) }()
	time.Sleep(never)
	if got := version(t, c); got != "4" {
		t.Errorf("during HoldBack: written %s times", got)
	}
	r.Heal()
	if err := <-done; err != nil {
		t.Error("late: ", err)
	}
	want("a held request arrives", "5")

	r.HoldBack()
	if put(r.Endpoint(), 7, never) == nil { // the client gives it up, and the connection ends
		t.Error("a reply came in spite of HoldBack")
	}
	r.HealLate(time.Now())
	want("a request that was given up arrives", "6")
	if err := put(r.Endpoint(), 8, soon); err != nil {
		t.Error("a new connection: ", err)
	}
}
