package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/pailfs/pailfs/bench/machine"
	"github.com/pailfs/pailfs/bench/reader"
)

// Config says what the demo does.
type Config struct {
	// Programs is the directory of ossemu and pailfs.
	Programs string
	// Data is the directory of Fashion-MNIST's four files.
	Data string
	// Out is the directory for everything: data, caches, and the pictures, which
	// alone stay there.
	Out string
	// Images is how many images are loaded, at most 70,000.
	Images int
	// PackedBytes is the size of the large file.
	PackedBytes int64
	// Sample is how many images the timed reads read.
	Sample int
	// Readers is how many images are read at once.
	Readers int
	// Profile is the server's.
	Profile string
	// Keep leaves server and mount running.
	Keep bool
	// Reader carries jobs out.
	Reader reader.Process
	// Stdout gets the table; Stderr what is being done.
	Stdout, Stderr io.Writer
	// Columns is the width of the terminal that Stdout is, 0 if it is none.
	Columns int
}

// mostImages is the size of Fashion-MNIST.
const mostImages = 70_000

func (c *Config) validate() error {
	switch {
	case c.Images < 1 || c.Images > mostImages:
		return fmt.Errorf("%d images: Fashion-MNIST has %d", c.Images, mostImages)
	case c.Sample < 1 || c.Sample > c.Images:
		return fmt.Errorf("a sample of %d is not among %d images", c.Sample, c.Images)
	case c.PackedBytes < 1<<20:
		return errors.New("the large file must have 1 MiB at least")
	case c.Readers < 1:
		return errors.New("at least one reader is needed")
	}
	if os.Geteuid() != 0 {
		return errors.New("only root may drop the kernel's caches and mount without fusermount: run as root")
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		return fmt.Errorf("this machine cannot mount: %w: load the kernel module fuse, or run the container with --device /dev/fuse", err)
	}
	return nil
}

// makeRoom checks that Out can hold everything: the server's copy, the plain
// one, and the cache.
func (c *Config) makeRoom() error {
	if err := os.MkdirAll(c.Out, 0o755); err != nil {
		return fmt.Errorf("make %q: %w", c.Out, err)
	}
	free, err := machine.FreeSpace(c.Out)
	if err != nil {
		return err
	}
	// A small file takes a block of 4 KiB, and its name some room besides.
	need := 3*(c.PackedBytes+int64(c.Images)*5000) + 512<<20
	if free < need {
		return fmt.Errorf("%q has %d MiB free and the demo needs %d MiB: say --out for another disk, or --big for less", c.Out, free>>20, need>>20)
	}
	return nil
}

func (c *Config) path(name string) string { return filepath.Join(c.Out, name) }

func (c *Config) say(format string, args ...any) { fmt.Fprintf(c.Stderr, format+"\n", args...) }

// step says what begins.
func (c *Config) step(ctx context.Context, format string, args ...any) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.say(format, args...)
	return nil
}
