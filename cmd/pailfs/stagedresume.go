package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/alecthomas/kong"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/reach"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/wire"
	"github.com/pailfs/pailfs/cmd/terminal"
	"github.com/pailfs/pailfs/fs/writeback"
	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
)

// stagedResumeCmd is `pailfs staged resume`.
type stagedResumeCmd struct {
	stagedFlags
	reach.StoreFlags
	Attrs   string          `name:"attrs" placeholder:"KIND" group:"mount" oneof:"auto,none,oss" help:"Where modes, owners and times of files are kept, as for the mount."`
	Timeout config.Duration `name:"timeout" default:"0s" placeholder:"TIME" help:"Give up after this long; 0s waits for ever."`
}

// Help gives examples.
func (stagedResumeCmd) Help() string {
	return `Publishes what was written, in its order, and needs neither a mount nor FUSE. The bucket and prefix are those of the mount; give the same --endpoint, --credentials and --attrs, or its --config.

Exit codes: 0 all of it is in the object store, 1 something is not (it is named, and stays), 2 wrong arguments.

Examples:

	pailfs staged resume --cache-dir /ssd/pailfs --endpoint https://oss-cn-hangzhou-internal.aliyuncs.com --region cn-hangzhou
	pailfs staged resume --cache-dir /mnt/dead-node/pailfs --config /etc/pailfs/data.yaml --timeout 10m`
}

// Run publishes.
func (c *stagedResumeCmd) Run(p command.Program, parsed *kong.Context) (err error) {
	dir, err := c.staging()
	if err != nil {
		return err
	}
	report, err := writeback.Inspect(dir)
	if err != nil {
		return c.explain(err)
	}
	l, err := c.LoadWith(p, parsed, func(s *config.Config) {
		s.CacheDir, s.Attrs = filepath.Dir(dir), c.Attrs
	}, "cache-dir", "attrs")
	if err != nil {
		return err
	}
	if !report.Same(l.Endpoint, report.Bucket, report.Prefix) {
		return command.Usage(fmt.Errorf("--endpoint %s: what is staged belongs to oss://%s/%s at %s: give that endpoint", l.Endpoint, report.Bucket, report.Prefix, report.Endpoint))
	}
	ctx, stop := command.Interruptible()
	defer stop()
	conn, err := reach.Connect(p, l)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if _, err := conn.Bucket(ctx, report.Bucket, report.Prefix); err != nil {
		return err
	}
	return c.resume(ctx, p, conn, report)
}

// resume publishes what the report tells of.
func (c *stagedResumeCmd) resume(ctx context.Context, p command.Program, conn *reach.Connection, report writeback.Report) (err error) {
	client, err := conn.Client(report.Bucket)
	if err != nil {
		return err
	}
	tree, err := manifest.NewLive(manifest.LiveConfig{Prefix: report.Prefix}, client.As(oss.Demand), prometheus.NewRegistry(), conn.Log)
	if err != nil {
		return fmt.Errorf("open names of oss://%s/%s: %w", report.Bucket, report.Prefix, err)
	}
	defer func() { err = errors.Join(err, tree.Close()) }()
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("ask for this machine's name: %w", err)
	}
	space, err := writeback.Open(writeback.Config{
		Dir:      report.Dir,
		Endpoint: conn.Settings.Endpoint,
		Bucket:   report.Bucket,
		Prefix:   report.Prefix,
		Host:     host,
		User:     fmt.Sprintf("pailfs staged resume (process %d)", os.Getpid()),
		Attrs:    conn.Settings.KeepsAttrs(),
	}, tree, client.As(oss.Upload), withoutCache{client.As(oss.Upload)}, nil, conn.Log)
	if err != nil {
		return c.explain(err)
	}
	running, stop := context.WithCancel(context.Background())
	var loops sync.WaitGroup
	var failed error
	loops.Go(func() { failed = space.Run(running) })
	defer func() {
		stop()
		loops.Wait()
		err = errors.Join(err, failed, space.Close())
	}()
	return c.drain(ctx, p, space)
}

// drain waits until everything is published, and says what is not.
func (c *stagedResumeCmd) drain(ctx context.Context, p command.Program, space *writeback.Space) error {
	patient := ctx
	if c.Timeout > 0 {
		var cancel context.CancelFunc
		patient, cancel = context.WithTimeout(ctx, time.Duration(c.Timeout))
		defer cancel()
	}
	before := space.Status()
	bar := terminal.NewProgress(p.Stderr)
	stopBar := bar.Watch(func(m *terminal.Progress) {
		now := space.Status()
		m.Show(fmt.Sprintf("%d changes left", now.Pending), before.DirtyBytes-now.DirtyBytes, before.DirtyBytes)
	})
	failed := space.Drain(patient)
	stopBar()
	after := space.Status()
	end := wire.Ending{Left: after.Pending, Paths: space.Pending("", wire.ListedAtEnd)}
	switch {
	case end.Left > 0 && ctx.Err() != nil:
		return fmt.Errorf("interrupted: %w", end.Err())
	case end.Left > 0:
		return end.Err()
	case len(after.Suspects) > 0:
		return fmt.Errorf("%d changes are in the object store, but the disk lost some of %s: export what is left with pailfs staged export", before.Pending-end.Left, shownNames(after.Suspects))
	case failed != nil:
		return failed
	}
	for _, conflict := range after.Conflicts {
		if conflict.Kept != "" {
			fmt.Fprintf(p.Stderr, "pailfs: %s holds somebody else's change; ours is %s\n", terminal.Name(conflict.Path), terminal.Name(conflict.Kept))
		} else {
			fmt.Fprintf(p.Stderr, "pailfs: %s holds somebody else's change; ours was not carried out\n", terminal.Name(conflict.Path))
		}
	}
	fmt.Fprintf(p.Stderr, "pailfs: %d changes were published, nothing is left\n", before.Pending)
	return nil
}

// shownNames returns some of the paths for people.
func shownNames(paths []string) string {
	text := ""
	for i, path := range paths {
		if i == wire.ListedAtEnd {
			return fmt.Sprintf("%s and %d more", text, len(paths)-i)
		}
		if i > 0 {
			text += ", "
		}
		text += terminal.Name(path)
	}
	return text
}

// withoutCache is the cache of a space that nobody reads from.
type withoutCache struct{ bucket oss.RangeReader }

var _ writeback.Cache = withoutCache{}

// takeChunk is how much of an object is fetched at once, in bytes.
const takeChunk = 8 << 20

// Take implements [writeback.Cache]: it fetches the object.
func (w withoutCache) Take(ctx context.Context, obj oss.Object, dst string) error {
	file, err := os.OpenFile(dst, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	buffer := make([]byte, min(takeChunk, obj.Size))
	for off := int64(0); off < obj.Size && err == nil; off += int64(len(buffer)) {
		buffer = buffer[:min(int64(len(buffer)), obj.Size-off)]
		if _, err = w.bucket.ReadRange(ctx, oss.RangeRequest{Object: obj, Offset: off, Buffer: buffer}); err == nil {
			_, err = file.WriteAt(buffer, off)
		}
	}
	return errors.Join(err, file.Close())
}

// Adopt implements [writeback.Cache]: nothing is kept.
func (withoutCache) Adopt(context.Context, oss.Object, uint64, string) (bool, error) {
	return false, nil
}

// MakeRoom implements [writeback.Cache].
func (withoutCache) MakeRoom(int64) int64 { return 0 }

// Drop implements [writeback.Cache].
func (withoutCache) Drop(oss.Object) {}

// Whole implements [writeback.Cache].
func (withoutCache) Whole(oss.Object) bool { return false }

// ReadAt implements [writeback.Cache].
func (w withoutCache) ReadAt(ctx context.Context, obj oss.Object, p []byte, off int64) (int, error) {
	p = p[:max(min(int64(len(p)), obj.Size-off), 0)]
	if len(p) == 0 {
		return 0, io.EOF
	}
	if _, err := w.bucket.ReadRange(ctx, oss.RangeRequest{Object: obj, Offset: off, Buffer: p}); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Pin implements [writeback.Cache].
func (withoutCache) Pin(oss.Object) (done func()) { return func() {} }
