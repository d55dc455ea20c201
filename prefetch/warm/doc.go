// Package warm brings paths into the cache that somebody asked to be there.
//
// A job is opened, given paths and asked after until it has finished ([Jobs.Warm] does all of
// that); one that nobody asks after ends. Jobs are a source of a scheduler, and take turns. They
// are small: who does not read results stops the job, and paths are taken as they are walked.
//
// A job takes no more room than sessions leave, and holds nothing: what it brought stays by its
// use, like what was read.
package warm
