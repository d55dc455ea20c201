// Package limiter decides how many requests to one service may be in flight, and
// whose turn it is.
//
// A request acquires a [Permit] in its [Class], and tells with its release what it saw
// of the service: an [Observation]. From those the limit is learned. While it waits it
// may become more urgent ([WithPromotion]) or unwanted ([WithWithdrawal]).
//
// The package knows nothing of objects, and sends nothing. Why it judges as it does
// stands in oss/DESIGN.md.
package limiter
