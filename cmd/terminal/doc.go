// Package terminal shows people at a terminal how far something is and how much it is, and asks
// them. Where nobody sits at a terminal it shows nothing, and nobody agrees.
//
// It lies beside the programs and not among their internal packages, because bench shows progress
// with it, too.
package terminal
