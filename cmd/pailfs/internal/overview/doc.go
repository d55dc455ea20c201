// Package overview is what people are shown of a mount: figures taken from what its daemon says, in
// one place, so that `pailfs top`, `pailfs ls` and the status page say the same of the same moment.
//
// [New] makes a [Mount] of a status, and [Judge] says whether something is wrong. Both compute only.
package overview
