// Package manifests has the commands of `pailfs manifest`: build, update, show, ls, verify and diff.
//
// They read flags, connect with package reach, and print what manifest/build and manifest/publish
// find and do.
package manifests
