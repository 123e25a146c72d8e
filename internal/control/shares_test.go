package control_test

import (
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/control"
)

// Sessions of one account that ask for ports and do nothing with them leave half of the ports to others, and lose theirs
// after a while.
func TestAnAccountHasHalfOfThePorts(t *testing.T) {
	const n = 8
	first, last := freePorts(t, n)
	s := serve(t, "tcp4", control.Options{}, plain, portsBetween(first, last), awaitsData(time.Second))
	var addrs []string
	greedy := make([]*client, n/2+1)
	for i := range greedy {
		greedy[i] = s.loginAs("greedy")
	}
	for _, c := range greedy[1:] {
		c.pasv()
		addrs = append(addrs, c.pasv()) // one session has one
	}
	greedy[0].play("> PASV", "< 425 your account has half", "> EPSV", "< 425 your account has half", "> STOR x", "< 425 ")
	other := s.loginAs("other")
	other.upload(other.dialData(other.pasv()), "x")

	greedy[1].play("> ABOR", "< 226 ")
	greedy[0].upload(greedy[0].dialData(greedy[0].pasv()), "y")
	greedy[0].pasv()
	greedy[1].play("> PASV", "< 425 your account has half")

	for _, addr := range addrs { // in time their ports are closed
		for until := time.Now().Add(patience); isOpen(addr); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(until) {
				t.Fatal("a port without a data connection stays open")
			}
		}
	}
	greedy[1].upload(greedy[1].dialData(greedy[1].pasv()), "z")
	greedy[2].play("> STOR x", "< 425 ")
}
