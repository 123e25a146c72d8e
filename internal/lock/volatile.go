package lock

// volatile is the part of a record that changes memory only.
type volatile struct {
	claim    *claim
	place    *place
	session  *session
	settings *settings
	nonce    string
	rules    *Rules
	pins     []Name // names whose holds a write keeps, or that follow a reload
	bars     []Name // names that a write keeps free
	holds    []*hold
	node     *node
	alarm    *alarm
	err      error
	mark     mark
	view     *view
	sign     sent
	until    Time
}

// mark is a small volatile change of one thing.
type mark uint8

const (
	markAlarm    mark = iota + 1 // alarm rings at until
	markBegun                    // the directory of claim is being made or removed: it has to be finished
	markUnheard                  // the client did not receive the grant of the hold of Hold: it ends as soon as it can
	markHeard                    // the client received it after all
	markRetry                    // the end of holds[0] failed, and is not tried before until
	markRival                    // another session of the holder's client was refused the lock of holds[0]
	markForgive                  // the session was told that it lost Hold.Name
	markBlocked                  // a program on the host has the directory of node, see err; no session tries before until
	markFree                     // the delay of node is over, or its directory of the host may be gone
	markSettings                 // the settings of session
	markNonce                    // the nonce of session
	markActive                   // the job of view is alive
	markFresh                    // the job of view begins afresh
	markLooked                   // the job of view has seen what was changed under tokens up to Hold.Token
	markWorks                    // the job of view changes something under its hold
	markSent                     // the job of holds[0] has sent MKD
	markRefused                  // the job of view may change nothing any more, see err
	markCleared                  // an administrator lets the job of view go on
	markSign                     // a session of the job of view sent a command
)
