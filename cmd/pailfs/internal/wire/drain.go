package wire

import (
	"time"
)

// Drain is what status says of a machine that is about to go.
type Drain struct {
	// Reason is what asked for it: a spot notice, a signal, a command.
	Reason string    `json:"reason"`
	Begun  time.Time `json:"begun"`
	// Deadline is when the machine may be gone.
	Deadline time.Time `json:"deadline"`
	// Unsafe counts the changes that the object store does not have, and their bytes;
	// Safe says that there are none.
	Unsafe      int   `json:"unsafe_changes"`
	UnsafeBytes int64 `json:"unsafe_bytes"`
	Safe        bool  `json:"safe"`
}

// What is known of a spot instance being taken back.
const (
	// SpotOff: nobody is asked.
	SpotOff = "off"
	// SpotUnknown: who is asked does not answer.
	SpotUnknown = "unknown"
	// SpotNone: the machine stays.
	SpotNone = "none"
	// SpotGiven: the machine is taken back.
	SpotGiven = "given"
)

// DrainParams are the parameters of the control method drain.
type DrainParams struct {
	// Seconds are left until the machine may be gone; 0 means five minutes.
	Seconds float64 `json:"seconds,omitempty"`
	// Stop ends it.
	Stop bool `json:"stop,omitempty"`
}
