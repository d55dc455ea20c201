// Package lateopens keeps what files had that lost their names, for programs that looked
// them up before and have not opened them yet.
//
// The kernel looks a name up and opens what it found with two requests. In between
// another program may replace or remove the name, and the open is still for the file
// that was there. So what that file had is kept until the kernel forgets it, which it
// does at once unless somebody is about to open it: a moment, mostly. How much is kept
// and for how long is bounded, since a program can keep the kernel from forgetting.
//
// The package knows neither files nor the kernel: it is told of keys, and calls back.
package lateopens
