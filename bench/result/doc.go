// Package result holds what was measured and says what it means.
//
// A [Sample] is one timed run of one client; a [Series] is the samples of one
// client on one workload; a [Target] compares two series with what must be
// reached. A [Report] is written as JSON, which later runs are compared with, and
// shown as Markdown. Every figure in it was measured; a comparison whose
// measurement cannot be trusted is refused and says why.
package result
