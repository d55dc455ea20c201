package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Sink mounts a go-fuse program that takes new files and does next to nothing with
// them: the floor of what can be written through go-fuse. Nothing arrives anywhere.
type Sink struct {
	// Program is the one that has the command sink.
	Program string
	// Stages makes a file of the disk of each new one, and records its bytes at the
	// close.
	Stages bool
}

var _ Driver = Sink{}

// Name implements [Driver].
func (d Sink) Name() string {
	if d.Stages {
		return "go-fuse, staging and recording only"
	}
	return "go-fuse, keeping nothing"
}

// Source implements [Driver].
func (Sink) Source() Source { return FromDisk }

// Start implements [Driver].
func (d Sink) Start(ctx context.Context, p Place) (Session, error) {
	at := filepath.Join(p.Work, "mnt")
	if err := os.MkdirAll(at, 0o755); err != nil {
		return nil, fmt.Errorf("prepare mount: %w", err)
	}
	args := []string{d.Program, "sink", at}
	if d.Stages {
		args = append(args, "--stage", filepath.Join(p.Work, "stage"))
	}
	m, err := startMount(ctx, at, processConfig{name: "sink", log: filepath.Join(p.Work, "sink.log"), args: args})
	if err != nil {
		return nil, err
	}
	return sinkSession{diskSession{at}, m}, nil
}

// sinkSession is a disk that is mounted.
type sinkSession struct {
	diskSession
	mount *mount
}

// Daemons implements [Session].
func (s sinkSession) Daemons() []int { return s.mount.daemons() }

// Stop implements [Session].
func (s sinkSession) Stop(context.Context) error {
	if err := unix.Unmount(s.mount.at, 0); err != nil {
		err = fmt.Errorf("unmount %q: %w", s.mount.at, err)
		return errors.Join(err, s.mount.process.stop(10*time.Second), s.mount.detach())
	}
	return s.mount.ended()
}
