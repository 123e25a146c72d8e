package control_test

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/internal/control"
)

// A client on the server's machine, or behind a relay there, does not have the server talk to services of that machine.
func TestActiveConnectionsDoNotReachServices(t *testing.T) {
	first, last := freePorts(t, 4)
	s := serve(t, "tcp4", control.Options{}, plain, portsBetween(first, last))
	c := s.login()
	own := portOf(s.addr)
	service, err := net.Listen("tcp", "127.0.0.1:"+fmt.Sprint(freePort(t)))
	if err != nil {
		t.Skip(err)
	}
	defer service.Close()
	open := portOf(s.login().pasv())
	for what, port := range map[string]int{
		"the server's own port": own, "one of its passive ports": open, "one that may become one": int(last),
		"a service": portOf(service.Addr().String()), "a privileged port": 25, "another service": 6379,
	} {
		for _, line := range []string{
			fmt.Sprintf("PORT 127,0,0,1,%d,%d", port>>8, port&255), fmt.Sprintf("PORT 0,0,0,0,%d,%d", port>>8, port&255),
			fmt.Sprintf("EPRT |1|127.0.0.1|%d|", port), fmt.Sprintf("EPRT |2|::ffff:127.0.0.1|%d|", port),
		} {
			if got := c.say(line)[0]; !strings.HasPrefix(got, "501 ") {
				t.Errorf("%s: %s: %s", what, line, got)
			}
		}
	}
	for _, port := range []int{49152, 65535} {
		c.play(fmt.Sprintf("> EPRT |1|127.0.0.1|%d|", port), "< 200 ")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") // as clients do
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c.play(fmt.Sprintf("> EPRT |1|127.0.0.1|%d|", portOf(l.Addr().String())), "< 200 ")
}

// freePort is one that systems do not give to clients.
func freePort(t *testing.T) int {
	first, _ := freePorts(t, 1)
	return int(first)
}
