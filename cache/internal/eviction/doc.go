// Package eviction decides what stays on SSD.
//
// [Residents] know every object that has a file, by its identity and what it occupies:
// who reserves room, is told whether there is some, and the evictor asks which is to go
// next. They know neither files nor content, nor who has an object open: a victim that
// cannot go is put back. How often an object was used, absent or not, is what a sketch
// remembers (sketch.go); who waits for room stands in line (roomline.go).
//
// All of it is a state machine behind one lock. It reads and writes nothing and has no
// goroutine; what it needs done it asks for by a function given to [New].
package eviction
