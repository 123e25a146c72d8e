package driver

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/control"
)

func TestWrongPasswordsThroughTheProtocol(t *testing.T) {
	s := start(t, func(s *setup) { s.control.Limits.LoginTimeout = time.Second })
	s.as("phoneacc").want("NOOP", "200 *")
	// A login that waits because of others' failures is over in time, too.
	checks, checked := make(chan struct{}), make(chan struct{})
	go s.driver.guessing.Try(t.Context(), "nobody", netip.MustParsePrefix("127.0.0.1/32"), func() bool { return false }, func() error {
		close(checks)
		<-checked
		return context.Canceled
	})
	<-checks
	c := s.dial()
	c.want("USER other", "331 *")
	c.want("PASS "+password, "421 the login took too long")
	c.ended()
	close(checked)
	s.control.SetLimits(control.Limits{})
	for i := range 10 {
		if i%2 == 0 { // before the connection is ended for it
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
