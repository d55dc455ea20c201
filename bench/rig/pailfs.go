package rig

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/bench/reader"
)

// Pailfs mounts the bucket with bin/pailfs. The zero value is the ordinary
// read-write mode that a user gets without flags, but that where nothing is written no
// object is asked for its attributes.
type Pailfs struct {
	// Variant is appended to the name.
	Variant string
	// Flags are added to those of every mount.
	Flags []string
	// Audit records what is done, in a file beside the log.
	Audit bool
	// Stays lets the daemon outlive this process.
	Stays bool
}

var _ Driver = Pailfs{}

// PailfsImmutable is pailfs for data that do not change while mounted.
func PailfsImmutable() Pailfs {
	return Pailfs{Variant: "immutable", Flags: []string{"--read-only", "--immutable"}}
}

// PailfsNoPassthrough is pailfs where every read goes through the daemon.
func PailfsNoPassthrough() Pailfs {
	return Pailfs{Variant: "nopassthrough", Flags: []string{"--passthrough", "off"}}
}

// With returns d with further flags.
func (d Pailfs) With(flags ...string) Pailfs {
	d.Flags = append(append([]string(nil), d.Flags...), flags...)
	return d
}

// ReadOnly reports whether nothing can be written.
func (d Pailfs) ReadOnly() bool { return slices.Contains(d.Flags, "--read-only") }

// Name implements [Driver].
func (d Pailfs) Name() string {
	if d.Variant == "" {
		return "pailfs"
	}
	return "pailfs-" + d.Variant
}

// Source implements [Driver].
func (Pailfs) Source() Source { return FromBucket }

// boundedMemory is the part of a bounded cache that is memory.
const boundedMemory = 64 << 20

// Start implements [Driver].
func (d Pailfs) Start(ctx context.Context, p Place) (Session, error) {
	at, cache, err := mountDirs(p)
	if err != nil {
		return nil, err
	}
	s := &PailfsSession{program: filepath.Join(p.Programs, "pailfs"), Mount: at}
	bucket := p.Server.Bucket()
	args := []string{
		s.program, "mount", "oss://" + bucket.Bucket + "/" + p.Prefix, s.Mount,
		"--endpoint", bucket.Endpoint, "--cache-dir", cache,
	}
	if !p.Writes {
		args = append(args, "--attrs", "none")
	}
	if p.CacheBytes > 0 {
		args = append(args, "--memory", fmt.Sprintf("%dKiB", boundedMemory>>10), "--cache-size", fmt.Sprintf("%dKiB", (p.CacheBytes-boundedMemory)>>10))
	}
	if d.Audit {
		args = append(args, "--audit", filepath.Join(p.Work, "pailfs.audit"))
	}
	s.Command = append(args, d.Flags...)
	s.mount, err = startMount(ctx, at, processConfig{
		name: "pailfs", args: s.Command, env: p.Server.Environment(),
		log: filepath.Join(p.Work, "pailfs.log"), stays: d.Stays,
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// PailfsSession is a running mount.
type PailfsSession struct {
	*mount

	program string
	// Mount is the mount point, Command how the daemon was started.
	Mount   string
	Command []string
}

var _ Session = (*PailfsSession)(nil)

// Aim implements [Session].
func (s *PailfsSession) Aim(job *reader.Job) { s.aim(job) }

// Daemons implements [Session].
func (s *PailfsSession) Daemons() []int { return s.daemons() }

// settleTime is how long the SSD tier may stand still before what it lacks is
// taken as left out.
const settleTime = 3 * time.Second

// Settle implements [Session]: it waits until every file is whole on SSD, or
// until nothing more is written.
func (s *PailfsSession) Settle(ctx context.Context, names []string) error {
	for _, path := range filesIn(s.Mount, names) {
		if err := s.settle(ctx, path); err != nil {
			return err
		}
	}
	return nil
}

func (s *PailfsSession) settle(ctx context.Context, path string) error {
	last, since := "", time.Now()
	for {
		whole, said, err := wholeOnSSD(path)
		switch {
		case err != nil:
			return fmt.Errorf("ask where %q is: %w", path, err)
		case whole:
			return nil
		case said != last:
			last, since = said, time.Now()
		case time.Since(since) > settleTime:
			return fmt.Errorf("%q is %w: it says %s", path, ErrUnsettled, said)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.process.ended:
			return s.process.died()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// wholeOnSSD asks the attribute that says which tiers hold a file.
func wholeOnSSD(path string) (whole bool, said string, err error) {
	buf := make([]byte, 4096)
	n, err := unix.Getxattr(path, "user.pailfs.tier", buf)
	if err != nil {
		return false, "", err
	}
	said = string(buf[:n])
	return slices.Contains(strings.Fields(said), "whole=true"), said, nil
}

// Status is what `pailfs status --json` says.
func (s *PailfsSession) Status(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, s.program, "status", "--json", s.Mount).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("ask status of %q: %w: %s", s.Mount, err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}

// Flush implements [Session] with `pailfs flush`.
func (s *PailfsSession) Flush(ctx context.Context) error {
	args := s.FlushCommand(s.Mount)
	out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("flush %q: %w: %s", s.Mount, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// FlushCommand is the command that brings what is below path into the bucket.
func (s *PailfsSession) FlushCommand(path string) []string {
	return []string{s.program, "flush", path}
}

// Abandon unmounts without uploading: what is not in the bucket stays staged.
func (s *PailfsSession) Abandon(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, s.program, "umount", "--force", s.Mount).CombinedOutput()
	if err != nil && s.process.running() {
		err = fmt.Errorf("unmount %q by force: %w: %s", s.Mount, err, strings.TrimSpace(string(out)))
		return errors.Join(err, s.process.stop(20*time.Second), s.detach())
	}
	select {
	case <-s.process.ended: // it says by its exit code that something is left
		return nil
	case <-time.After(longest):
		return errors.Join(fmt.Errorf("unmount %q by force: the daemon goes on", s.Mount), s.process.stop(10*time.Second))
	}
}

// Stop implements [Session]. It unmounts as a user does, and by force if that
// fails: a mount must not outlive its measurement.
func (s *PailfsSession) Stop(ctx context.Context) error {
	if !s.process.running() {
		return errors.Join(s.process.died(), s.detach())
	}
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	out, err := exec.CommandContext(ctx, s.program, "umount", s.Mount).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("unmount %q: %w: %s", s.Mount, err, strings.TrimSpace(string(out)))
		return errors.Join(err, s.process.stop(10*time.Second), s.detach())
	}
	return s.ended()
}
