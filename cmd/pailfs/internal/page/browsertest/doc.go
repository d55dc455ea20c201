// Package browsertest holds tests of the status page in a real browser, Debian's chromium, over real
// mounts: what it shows, whether it can be used without a mouse, without colours and without eyes,
// and that what users name as they like stays text. Only tests are here.
//
// With `go test -artifacts` pictures of the page are kept.
package browsertest
