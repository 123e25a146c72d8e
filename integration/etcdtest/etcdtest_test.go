//go:build linux

package etcdtest

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAnotherMemberLeadsWhenTheLeaderIsKilledOrStopped(t *testing.T) {
	t.Parallel()
	c := Start(t, 3)
	if got := len(c.Endpoints()); got != 3 {
		t.Fatalf("%d endpoints", got)
	}
	first := c.LeaderIndex()
	c.Kill(first)
	c.Ready()
	second := c.LeaderIndex()
	if second == first {
		t.Errorf("member %d leads, and was killed", second)
	}
	c.Restart(first)
	c.Ready()
	c.Stop(second)
	if third := c.LeaderIndex(); third == second {
		t.Errorf("member %d leads, and was stopped", third)
	}
	c.Continue(second)
	c.Ready()
}

// put writes to etcd by its gateway.
func put(to string, value int, within time.Duration) error {
	client := http.Client{Timeout: within, Transport: &http.Transport{DisableKeepAlives: true}}
	body := fmt.Sprintf(`{"key": "YQ==", "value": "%04d"}`, value) // both are base64
	r, err := client.Post("http://"+to+"/v3/kv/put", "application/json", strings.NewReader(body))
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return err
	}
	if r.StatusCode != http.StatusOK {
		return fmt.Errorf("%s", r.Status)
	}
	return nil
}

// version returns how often the key was written.
func version(t *testing.T, c *Cluster) string {
	t.Helper()
	r, err := http.Post("http://"+c.Endpoints()[0]+"/v3/kv/range", "application/json", strings.NewReader(`{"key": "YQ=="}`))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), `"version":"`)
	number, _, _ := strings.Cut(rest, `"`)
	return number
}

func TestRelayCutsDelaysHoldsBackAndHeals(t *testing.T) {
	t.Parallel()
	c := Start(t, 1)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
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
	want("it passes on", "1")

	r.Cut()
	if put(r.Endpoint(), 2, never) == nil {
		t.Error("a cut relay passes on")
	}
	r.Heal()
	if err := put(r.Endpoint(), 3, soon); err != nil {
		t.Error("healed: ", err)
	}
	want("what was sent in the cut is lost", "2")

	r.Delay(50 * time.Millisecond)
	begin := time.Now()
	if err := put(r.Endpoint(), 4, soon); err != nil {
		t.Error("delayed: ", err)
	}
	if took := time.Since(begin); took < 100*time.Millisecond {
		t.Errorf("a request and its reply took %v", took)
	}
	want("it comes late", "3")

	r.HoldReplies()
	if put(r.Endpoint(), 5, never) == nil {
		t.Error("a reply came that was to be held back")
	}
	want("the request came", "4")

	r.HoldBack()
	done := make(chan error, 1)
	go func() { done <- put(r.Endpoint(), 6, soon) }()
	time.Sleep(never)
	if got := version(t, c); got != "4" {
		t.Errorf("held back, and written %s times", got)
	}
	r.Heal()
	if err := <-done; err != nil {
		t.Error("late: ", err)
	}
	want("what was held back comes", "5")

	r.HoldBack()
	if put(r.Endpoint(), 7, never) == nil { // it is given up, and the connection ends
		t.Error("held back, and a reply came")
	}
	r.HealLate(time.Now())
	want("what was given up comes", "6")
	if err := put(r.Endpoint(), 8, soon); err != nil {
		t.Error("a new connection: ", err)
	}
}
