package driver

import (
	"testing"
	"time"
)

// The data connection's end is seen some time before that of the control connection.
func TestAsLongAsIsConfiguredAClientMayTakeToHangUp(t *testing.T) {
	const apart = 40 * time.Millisecond
	for within, want := range map[time.Duration]string{0: "half of it", time.Minute: "old"} {
		t.Run(within.String(), func(t *testing.T) {
			s := start(t, func(o *setup) { o.settings.HangUp = within })
			s.write("/f", "old")
			c := s.as("phoneacc")
			d := c.data()
			c.want("STOR /f", "150 *")
			if _, err := d.Write([]byte("half of it")); err != nil {
				t.Fatal(err)
			}
			d.Close()
			time.Sleep(apart)
			c.tcp.Close()
			s.alone()
			s.wantContent("/f", want)
		})
	}
}

// Who waits for the reply need not wait for longer than is configured.
func TestAnUploadWaitsForAHangUpOnlySoLong(t *testing.T) {
	s := start(t, func(o *setup) { o.settings.HangUp = 200 * time.Millisecond })
	c := s.as("phoneacc")
	began := time.Now()
	c.store("/f", "whole")
	if took := time.Since(began); took < 200*time.Millisecond || took > patience/2 {
		t.Errorf("it took %v", took)
	}
	s.wantContent("/f", "whole")
}

// What its client says while an upload waits is looked at, and answered in its turn.
func TestAnAbortWhileAnUploadWaitsForAHangUp(t *testing.T) {
	s := start(t, func(o *setup) { o.settings.HangUp = time.Second })
	s.write("/f", "old")
	c := s.as("phoneacc")
	d := c.data()
	c.want("STOR /f", "150 *")
	d.Write([]byte("new"))
	d.Close()
	time.Sleep(100 * time.Millisecond)
	c.play(`
		C: ABOR
		S: 426 /f: aborted by ABOR
		S: 226 *`)
	s.wantContent("/f", "old")
}

// Behind a QUIT the end of the control connection is not read: it is seen by the look that an upload takes at its client.
func TestAnUploadIsNotPublishedIfItsClientHangsUpBehindAQuit(t *testing.T) {
	s := start(t, func(o *setup) { o.settings.HangUp = time.Minute })
	s.write("/f", "old")
	c := s.as("phoneacc")
	d := c.data()
	c.want("TYPE I", "200 *")
	c.want("ALLO 3", "200 *")
	c.want("STOR /f", "150 *")
	if _, err := d.Write([]byte("new")); err != nil {
		t.Fatal(err)
	}
	c.send("QUIT\r\n")
	c.tcp.Close()
	d.Close()
	s.alone()
	s.wantContent("/f", "old")
}
