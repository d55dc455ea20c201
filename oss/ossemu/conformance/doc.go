// Package conformance runs real clients, unmodified, against the emulator.
//
// The vendor's two Go SDKs carry integration tests that were written against
// the real service. Their test binaries are built out of the module cache, each
// inside a nested module (sdkv1, sdkv2) that pins the SDK and what its tests
// import, and run against an emulator in this process. Every test that is not
// named in exclusions.txt must pass; what is named there has its reason beside
// it, and no reason is "not done". rclone and s3fs stand for the S3 dialect, and
// objects written by one SDK are read by the other.
//
// PAILFS_CONFORMANCE=full also runs the excluded tests and fails for every one
// that passes, so that the lists stay true, and moves more data.
package conformance
