// Package rights leads from the paths that users name to objects, and nothing else does.
//
// [Rights] finds what a mount shows at a path, as far as the kernel would let somebody;
// cmd/pailfs/internal/access implements it. [Walk] goes through all that a path means.
// Whoever is told something that was found earlier is asked about again by
// [Rights.Refused]: rights are those of the moment of the call.
package rights
