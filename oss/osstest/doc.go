// Package osstest is the contract of [oss.Bucket] as a test suite.
//
// [Run] holds every sentence of the interfaces' comments against a bucket,
// whatever stands behind it: the client and the emulator in continuous
// integration, the client and a real bucket where one is at hand, a wrapper that
// must keep the contract. It writes only under a prefix of its own, made anew for
// each run, and removes what it wrote.
package osstest
