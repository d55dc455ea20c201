// Package durable puts small files on the disk so that they survive a loss of power.
//
// It is for what is written seldom and read after the next start: a format's version, a note, a
// state. It keeps nothing, and imports nothing of pailfs.
package durable
