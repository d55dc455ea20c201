// Package attributes shows of each name what the metadata of its object says: mode,
// owner, group, time of modification, and whether it is a symbolic link of ossfs 1.
//
// Metadata costs a HEAD for each object. It is asked when a name is looked up first,
// and remembered by the version of the object, which does not change: so each
// version is asked once, also across restarts. Who looks up one name of a directory
// after the other is met halfway: those that follow are asked ahead, up to 2,048 at a
// time, as prefetches until somebody waits for them; how many of them are in flight is
// for the limiter of package oss, which follows the latency of HEADs as that of reads.
// Who lists names with their attributes has those of a page asked at once. What nobody
// looks at any more is withdrawn: package walk decides about all that.
//
// A listing alone asks nothing; its entries are partial where nothing is remembered.
// What a manifest holds is believed.
//
// The marker of a directory has a version too, but no listing of the directory above
// shows it. What was asked of it is remembered for as long as a name is.
package attributes
