package ossemu

import (
	"fmt"
	"time"
)

// FaultKind is what goes wrong.
type FaultKind string

// The kinds of faults.
const (
	// FaultError answers with the error Code in place of doing anything.
	FaultError FaultKind = "error"
	// FaultReset resets the connection before the first byte of an answer, in
	// place of doing anything.
	FaultReset FaultKind = "reset"
	// FaultResetBody resets the connection after Bytes of the body.
	FaultResetBody FaultKind = "reset-body"
	// FaultTruncate closes the connection in an orderly way after Bytes of the body.
	FaultTruncate FaultKind = "truncate"
	// FaultStall sends Bytes of the body, then nothing for Delay, then the rest.
	FaultStall FaultKind = "stall"
	// FaultSlowFirstByte waits for Delay before the answer.
	FaultSlowFirstByte FaultKind = "slow-first-byte"
	// FaultCorrupt flips one bit in every 4096 bytes of the body, at least one.
	FaultCorrupt FaultKind = "corrupt"
	// FaultWrongCRC answers with a wrong x-oss-hash-crc64ecma.
	FaultWrongCRC FaultKind = "wrong-crc"
	// FaultWrongETag answers with a wrong ETag.
	FaultWrongETag FaultKind = "wrong-etag"
	// FaultStaleList answers a listing from the state of the bucket when the fault
	// was set or, with Delay, from a state that is at most that old.
	FaultStaleList FaultKind = "stale-list"
	// FaultErrorAfterCommit does the work, then answers with the error Code.
	FaultErrorAfterCommit FaultKind = "error-after-commit"
	// FaultLostReply does the work, then resets the connection.
	FaultLostReply FaultKind = "lost-reply"
	// FaultSlowAccept leaves a new connection unserved for Delay. It has no
	// operation and no key.
	FaultSlowAccept FaultKind = "slow-accept"
)

// Fault is one thing that goes wrong, and when. A request suffers the first
// fault in the list that matches it and whose turn it is.
type Fault struct {
	// Operation is the name of an operation as [Stats] names it, or "*" or "" for
	// every one.
	Operation string
	// KeyPrefix and KeyContains, when set, must both match the key. A listing is
	// matched by its prefix parameter.
	KeyPrefix   string
	KeyContains string
	// Kind is what goes wrong.
	Kind FaultKind
	// Code is the error of FaultError and FaultErrorAfterCommit, such as
	// QpsLimitExceeded or InternalError. Status overrides the status that belongs to
	// it and is needed for a code that the server does not know.
	Code   string
	Status int
	// Delay is how long a slow fault lasts.
	Delay time.Duration
	// Bytes is how much of the body comes before the fault; 0 means half of it.
	Bytes int64
	// Skip lets that many matching requests pass unharmed first.
	Skip int
	// Every makes only each Nth matching request suffer; 0 and 1 mean each.
	Every int
	// Probability, when above 0, lets chance decide.
	Probability float64
	// Count ends the fault after that many requests have suffered; 0 means never.
	Count int
}

func (f Fault) validate() error {
	switch f.Kind {
	case FaultError, FaultErrorAfterCommit:
		if f.Status == 0 {
			if _, known := errorByCode(f.Code); !known {
				return fmt.Errorf("code %q: not an error of this server; give its status too", f.Code)
			}
		} else if f.Status < 300 || f.Status > 599 {
			return fmt.Errorf("status %d: want 300 to 599", f.Status)
		}
	case FaultStall, FaultSlowFirstByte, FaultSlowAccept:
		if f.Delay <= 0 {
			return fmt.Errorf("kind %q needs a delay", f.Kind)
		}
	case FaultReset, FaultResetBody, FaultTruncate, FaultCorrupt, FaultWrongCRC, FaultWrongETag, FaultStaleList, FaultLostReply:
	default:
		return fmt.Errorf("kind %q: not a kind of fault", f.Kind)
	}
	if f.Operation != "" && f.Operation != "*" {
		if _, known := operationByName(f.Operation); !known {
			return fmt.Errorf("operation %q: not an operation of this server", f.Operation)
		}
	}
	if !(f.Probability >= 0 && f.Probability <= 1) {
		return fmt.Errorf("probability %v: want 0 to 1", f.Probability)
	}
	if f.Skip < 0 || f.Every < 0 || f.Count < 0 || f.Bytes < 0 || f.Delay < 0 {
		return fmt.Errorf("kind %q: skip, every, count, bytes and delay cannot be negative", f.Kind)
	}
	return nil
}
