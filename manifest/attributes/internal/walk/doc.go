// Package walk decides how much of a directory is asked for ahead of somebody who looks at
// one name after the other, and when nobody does any more.
//
// It is a state machine without input, output or a clock of its own: its owner tells it what
// was looked up, does what it says, and guards it with a lock.
package walk
