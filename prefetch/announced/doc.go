// Package announced does what sessions have announced: it resolves paths with the rights of
// who announced them, holds their objects in the cache, fetches them and lets them go.
//
// What is to be done next is decided by the state machine of package session, which
// [Sessions] lock and serve: calls.go has what clients ask, fetch.go what is done for them,
// kept.go what keeps sessions over the daemon's death asks (package keep). What is fetched is a source
// of a scheduler.
//
// No call waits for a path, for the cache or for the log.
package announced
