// Package programtest is what tests of the program pailfs have in common: an emulated object store,
// the built program run to its end or as a mount, users and manifests.
//
// A package whose tests run the program has a TestMain that calls [Main].
package programtest
