package driver

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/control"
)

func TestAnAddressIsRefusedAfterTenWrongPasswords(t *testing.T) {
	s := start(t, func(s *setup) { s.control.Limits.LoginTimeout = time.Second })
	s.as("phoneacc").want("NOOP", "200 *")
	// A login that waits for its turn ends in time.
	checks, checked := make(chan struct{}), make(chan struct{})
	go s.driver.logins.Guessing.Try(t.Context(), "nobody", netip.MustParsePrefix("127.0.0.1/32"), func() bool { return false }, func() error {
		close(checks)
		<-checked
		return context.Canceled
	})
	<-checks
	c := s.dial()
	c.want("USER other", "331 *")
	c.want("PASS "+password, "421 the login took too long")
	c.ended()
	s.control.SetLimits(control.Limits{})
	c = s.dial() // a script that is piped into nc
	c.want("USER other", "331 *")
	c.send("PASS " + password + "\r\n")
	c.TCP.CloseWrite()
	close(checked)
	c.play("=> 421 your side of the connection is closed: *")
	for i := range 10 {
		if i%2 == 0 { // a connection ends after five failures
			c = s.dial()
		}
		c.want("USER nobody", "331 *")
		c.want("PASS wrong", "530 login incorrect")
	}
	c = s.dial()
	c.want("USER other", "331 *")
	c.want("PASS "+password, "421 too many wrong passwords from this address, try again in a few minutes")
	c.ended()
	s.as("phoneacc").want("NOOP", "200 *") // it has logged in from here
}
