// Package prefetch brings objects in before they are read, and lets them go after.
//
// [Prefetcher] does so for three reasons: because a trainer's sampler announced
// what it will use (package announced, on the state machine of package session), because
// somebody asked for paths to be warmed (package warm), and because what is opened lets
// one guess what comes next (package guess). All of it goes through one scheduler
// (package scheduler), which keeps as many fetches on their way as the object store
// bears, the announced before the guessed. What sessions hold outlives the daemon
// (package keep).
//
// Names come from a manifest.Tree, bytes go into the cache by its Fetch; the cache
// decides how wide one object is fetched, and a read of the same object never
// waits behind it. The file system and this package do not know each other: they
// meet in the cache, which is what makes "prefetched" and "read" the same bytes.
//
// Whatever is told here is a hint. A hint that cannot be followed costs speed; it
// stops nobody.
package prefetch
