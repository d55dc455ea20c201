// Package follow shows the newest published manifest while newer ones come.
//
// [Tree] asks now and then which generation is the newest, downloads one that it
// does not have, and goes over to it between two answers: every answer is of one
// generation, whole. What it goes on with after a failure, whatever failed, is the
// generation that it has. [Tree.Next] tells the file system of each step.
//
// A manifest may be older than the bucket. The tree does not know until somebody
// reads an object, finds another version and calls [Tree.Forget]; that name is
// asked of the bucket from then on, until a generation says something new of it.
//
// The package makes no manifests and lists nothing.
package follow
