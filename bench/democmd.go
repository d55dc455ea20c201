package main

import (
	"fmt"

	"github.com/pailfs/pailfs/bench/dataset"
	"github.com/pailfs/pailfs/bench/demo"
	"github.com/pailfs/pailfs/cmd/terminal"
)

// demoCmd shows a real data set.
type demoCmd struct {
	Bin     string `placeholder:"DIR" help:"Directory of pailfs and ossemu (default: that of this program, else bin)."`
	Out     string `default:".demo" placeholder:"DIR" help:"Where to put data, caches and pictures; the pictures stay."`
	Data    string `default:"${fashion}" placeholder:"DIR" help:"Where Fashion-MNIST is."`
	Images  int    `default:"70000" placeholder:"N" help:"Images that are loaded."`
	Big     string `default:"2GiB" placeholder:"SIZE" help:"Size of the large file."`
	Sample  int    `default:"4000" placeholder:"N" help:"Images that the timed reads read."`
	Readers int    `default:"16" placeholder:"N" help:"Images read at once."`
	Profile string `default:"seed" placeholder:"NAME" help:"How far away the server is: none, seed, accelerator."`
	Short   bool   `help:"Reduce every size: shows that everything works, not how fast."`
	Keep    bool   `help:"Leave server and mount running, and say how to look around."`
}

// Run implements the command.
func (c *demoCmd) Run(p program) error {
	programs, err := findPrograms(c.Bin)
	if err != nil {
		return err
	}
	packed, err := parseSize(c.Big)
	if err != nil {
		return fmt.Errorf("--big: %w", err)
	}
	process, err := readerProcess()
	if err != nil {
		return err
	}
	cfg := demo.Config{
		Programs: programs, Data: c.Data, Out: c.Out, Images: c.Images, PackedBytes: packed,
		Sample: c.Sample, Readers: c.Readers, Profile: c.Profile, Keep: c.Keep, Reader: process,
		Stdout: p.stdout, Stderr: p.stderr, Columns: terminal.Columns(p.stdout),
	}
	if c.Short {
		cfg.Images, cfg.Sample, cfg.PackedBytes = min(cfg.Images, 2000), min(cfg.Sample, 200), min(packed, 64<<20)
	}
	return demo.Run(p.ctx, cfg)
}

// fashionDir is where the data set lies by default.
const fashionDir = dataset.FashionDir
