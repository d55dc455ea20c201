// Package budget says how much of the daemon each user may take up.
//
// Whoever can open a directory of the mount can make the daemon remember something: a
// session, names that will be read, a call that runs, an answer that waits to be fetched.
// A [Ledger] counts all of it by [Kind] and by user. What is beyond a bound is refused at
// once with an [Exceeded], and nobody waits for anybody.
//
// Of each kind there is a total, which bounds the daemon's memory whatever anybody does.
// Root and the daemon's own user may take all of it, so that others cannot lock them out;
// the others together three quarters. Who has the id of one of the two in a container is
// none of them, but a guest. Of the three quarters one user may have at most half of what the
// rest of them has left: alone three eighths of the total, and beside others who want all
// they can get about as much as each of them. So whoever comes later still finds something.
//
// The package keeps amounts. What a thing costs is said where the thing is made.
package budget
