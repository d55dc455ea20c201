package main

import "github.com/pailfs/pailfs/bench/sink"

// sinkCmd is what writing small files is compared with beside the disk: a go-fuse
// program that does next to nothing.
type sinkCmd struct {
	Stage string `help:"Make a file of this directory of each new file, and record its bytes at the close; keep nothing if not said."`
	At    string `arg:"" type:"existingdir" help:"Where to mount."`
}

// Run mounts and serves until it is unmounted.
func (c sinkCmd) Run(p program) error { return sink.Serve(p.ctx, c.At, c.Stage) }
