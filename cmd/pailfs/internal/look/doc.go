// Package look is what commands about all mounts of the host see: which there are, how each does,
// and what its daemon says.
//
//	mounts, err := look.List()
//	for _, m := range mounts {
//		seen := look.At(ctx, m)
//	}
//
// A mount is looked at by a child process, see package child, so one that hangs costs its caller
// the time that ctx has and no more. Package overview says from what a daemon answers whether all is
// well.
package look
