package main

import (
	"os"

	"github.com/pailfs/pailfs/bench/names"
)

// namesJobCmd is the listing process.
type namesJobCmd struct{}

// Run reads a job from standard input and writes its outcome.
func (namesJobCmd) Run(p program) error { return names.Serve(p.ctx, os.Stdin, p.stdout) }

// memoryTreeCmd is what listings are compared with: a go-fuse program that has every
// name in its memory.
type memoryTreeCmd struct {
	Dirs  int    `default:"1" help:"How many directories."`
	Files int    `required:"" help:"How many files are in each."`
	At    string `arg:"" type:"existingdir" help:"Where to mount."`
}

// Run mounts and serves until it is unmounted.
func (c memoryTreeCmd) Run(p program) error {
	return names.Tree{Dirs: c.Dirs, Files: c.Files}.MountMemory(p.ctx, c.At)
}
