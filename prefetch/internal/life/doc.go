// Package life ends calls that are under way for something, when that is wanted no more.
// It stands in the place of a context that would have to be kept for as long.
package life
