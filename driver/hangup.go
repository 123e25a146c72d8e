package driver

import "time"

// longestHangUp bounds the part of hangUpWait that is longer than Settings.HangUp.
const longestHangUp = 50 * time.Millisecond

// hangUpWait returns how long an upload waits, after the end of its data connection, for the end of the control connection, if nothing proves that
// it is complete. The kernel ends the connections of a killed client one after the other: on a busy machine several milliseconds may pass. A
// longer transfer is more likely to be killed, so the wait is a twentieth of its duration. Half of the partial files of killed clients with
// small uploads are empty, and few complete ones are. If hangUp is 0, the upload does not wait.
func hangUpWait(hangUp, took time.Duration, received int64) time.Duration {
	switch {
	case hangUp == 0:
		return 0
	case received == 0:
		return max(hangUp, longestHangUp)
	}
	return max(hangUp, min(took/20, longestHangUp))
}
