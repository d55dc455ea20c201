// Package systemtest breaks the built program, mounted for real, against the
// emulator, and checks that a read returns bytes of exactly one object version,
// or an error, and never hangs.
//
// The daemon is a process of its own, so that it can be killed at any instant.
// The readers are another one, because a page fault on a mount stops a thread
// of Go for as long as the daemon takes. The emulator runs in the test, which
// can so make it fail at will and count what it is asked for. Every byte of
// every object follows from the key, the number of the version and the offset,
// so a wrong byte is not only found but traced to where it belongs.
//
// TestTorture breaks it under writers, in rounds that a seed repeats: see load for
// who writes, and package torture for the kinds of rounds. `make torture` runs a
// thousand, in parts whose summaries add up, TORTURE.md says what came of it. Some tests of other
// packages are rounds as well, at their full size.
//
// The tests are bounded: by default they are a minute or so together. With
// PAILFS_SYSTEMTEST_ROUNDS=N those that depend on chance run N rounds each;
// PAILFS_SYSTEMTEST_SEED=S begins with that seed, which each prints;
// PAILFS_SYSTEMTEST_RACE=1 builds the daemon with the race detector, whose
// reports fail the test. A night of searching is
//
//	PAILFS_SYSTEMTEST_ROUNDS=300 go test -count=1 -timeout 12h ./cmd/pailfs/systemtest
//
// The tests need root: they mount in a mount namespace of their own, which ends
// with them.
package systemtest
