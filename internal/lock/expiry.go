package lock

import "time"

// Expiry describes when a lock ends by itself.
type Expiry struct {
	Remaining time.Duration // until it ends, if there is no further sign of life; 0 when that is due
	Never     bool          // it does not end by itself, and Remaining means nothing
	Idle      time.Duration // it ends so long after its last sign of life; 0: no limit
	Latest    time.Duration // with Idle: until it ends whatever signs of life there are; less than Remaining: never
}

// Text returns it in words: "expires in 5m48s", "never expires", with both limits "expires in 23h59m48s or 30m0s after its
// last sign of life", with the idle limit alone "expires in 29m48s, 30m0s after its last sign of life". It names the idle
// limit only where that can end the lock first.
func (x Expiry) Text() string {
	after := seconds(x.Idle) + " after its last sign of life"
	switch {
	case x.Never:
		return "never expires"
	case x.Idle == 0 || x.Latest == x.Remaining:
		return "expires in " + seconds(x.Remaining)
	case x.Latest > x.Remaining:
		return "expires in " + seconds(x.Latest) + " or " + after
	case seconds(x.Remaining) == seconds(x.Idle):
		return "expires " + after
	}
	return "expires in " + seconds(x.Remaining) + ", " + after
}
