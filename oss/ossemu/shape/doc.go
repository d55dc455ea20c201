// Package shape makes a fast server as slow as a distant one: it says how long
// a request waits, and when the next slice of its bytes may travel.
//
// A [Shape] is the description. A [Shaper] holds one in force, replaceable while
// requests run. [Shaper.Begin] draws everything random about one request (its
// latency, whether it falls into the tail, the rate of its connection) from a
// generator seeded with Shape.Seed and the request's number, so a run can be
// repeated.
//
// Bandwidth is kept with absolute deadlines. Every slice is given the instant at
// which a link of that rate would have finished carrying it; whoever wakes late
// catches up, so that the overshoot of a timer is not a loss of rate. A request
// has at most one slice in the queue of the whole link, which makes the queue's
// order a fair share. No lock is held while anybody waits.
package shape
