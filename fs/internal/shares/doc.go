// Package shares shares a number of things out among users, so that nobody has all.
//
// Root and the daemon's own user may have all there are, so that others cannot lock them
// out; the others together three quarters. One of these may have at most half of what the rest
// of them has left: alone three eighths of all. Whoever comes later still finds something.
//
// It is the rule of package budget for what the control channel keeps, for one kind of
// things that fs keeps, and is no part of a read.
package shares
