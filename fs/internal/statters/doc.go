// Package statters remembers which threads look up what they have listed, and so want the
// attributes with the names.
//
// It knows threads and directories by their numbers, and neither names nor the protocol.
package statters
