package driver

import (
	"testing"
	"time"
)

// An upload that has shown that nothing is missing is published without a look at whether its client hangs up.
func TestAnUploadThatIsProvenCompleteDoesNotWait(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*setup)
		begin  func(c *conn)
	}{
		{"all that ALLO announced", func(*setup) {}, func(c *conn) { c.login("phoneacc"); c.want("TYPE I", "200 *"); c.want("ALLO 5", "200 *") }},
		{"a close_notify", secure, func(c *conn) { c.upgrade(); c.login("phoneacc") }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := start(t, tt.change, func(o *setup) { o.settings.HangUp = patience })
			c := s.dial()
			tt.begin(c)
			began := time.Now()
			c.upload("STOR /f", "whole")
			s.wantContent("/f", "whole")
			if took := time.Since(began); took >= patience {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// ALLO may announce less than comes: then it proves nothing.
func TestMoreBytesThanAnnouncedProveNothing(t *testing.T) {
	s := start(t, func(o *setup) { o.settings.HangUp = patience })
	s.write("/f", "old")
	c := s.as("phoneacc")
	c.want("TYPE I", "200 *")
	c.want("ALLO 4", "200 *")
	d := c.data()
	c.want("STOR /f", "150 *")
	if _, err := d.Write([]byte("half of it")); err != nil {
		t.Fatal(err)
	}
	d.Close()
	time.AfterFunc(50*time.Millisecond, func() { c.tcp.Close() }) // its process dies; the data connection's end was seen first
	s.alone()
	s.wantContent("/f", "old")
}
