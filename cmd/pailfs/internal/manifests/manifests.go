package manifests

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/reach"
	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/manifest/publish"
	"github.com/pailfs/pailfs/oss"
)

// Cmd is `pailfs manifest`.
type Cmd struct {
	Build  buildCmd  `cmd:"" help:"Find out what there is, write it down and publish it."`
	Update updateCmd `cmd:"" help:"Publish a new generation, listing again only what is named."`
	Show   showCmd   `cmd:"" help:"Say what a manifest is of, or which are published."`
	Ls     lsCmd     `cmd:"" help:"List names as a mount with the manifest would show them."`
	Verify verifyCmd `cmd:"" help:"Compare a manifest with its bucket."`
	Diff   diffCmd   `cmd:"" help:"Compare two manifests."`
}

// run is what every manifest command works with.
type run struct {
	p        command.Program
	conn     *reach.Connection
	location config.Location
	bucket   oss.Bucket
	opened   []*manifest.Snapshot
	// guest says that the connection is another run's.
	guest bool
	// fetched are the generations that were fetched into fetchDir.
	fetched  []publish.Generation
	fetchDir string
}

// openRun connects to the bucket of a location.
func openRun(ctx context.Context, p command.Program, parsed *kong.Context, flags *reach.StoreFlags, at config.Location) (*run, error) {
	l, err := flags.Load(p, parsed)
	if err != nil {
		return nil, err
	}
	r := &run{p: p, location: at}
	if r.conn, err = reach.Connect(p, l); err != nil {
		return nil, err
	}
	if r.bucket, err = r.conn.Bucket(ctx, at.Bucket, at.Prefix); err != nil {
		return nil, errors.Join(err, r.conn.Close())
	}
	return r, nil
}

// at returns a run for another location over the same connection.
func (r *run) at(ctx context.Context, other config.Location) (*run, error) {
	bucket, err := r.conn.Bucket(ctx, other.Bucket, other.Prefix)
	if err != nil {
		return nil, err
	}
	return &run{p: r.p, conn: r.conn, guest: true, location: other, bucket: bucket}, nil
}

// close closes what was opened. Of the fetched files those of the last command
// stay, for the next one.
func (r *run) close() error {
	var failed error
	if len(r.fetched) > 0 {
		failed = publish.Prune(r.fetchDir, r.fetched...)
	}
	for _, s := range r.opened {
		failed = errors.Join(failed, s.Close())
	}
	if r.conn != nil && !r.guest {
		failed = errors.Join(failed, r.conn.Close())
	}
	return failed
}

// open opens a manifest file until the run is closed.
func (r *run) open(path string) (*manifest.Snapshot, error) {
	s, err := manifest.OpenSnapshot(path, manifest.SnapshotConfig{})
	if err != nil {
		return nil, err
	}
	r.opened = append(r.opened, s)
	return s, nil
}

// generation returns a published generation, the newest if number is 0.
func (r *run) generation(ctx context.Context, number uint64) (publish.Generation, error) {
	if number == 0 {
		return publish.Latest(ctx, r.bucket, r.location.Prefix)
	}
	return publish.Find(ctx, r.bucket, r.location.Prefix, number)
}

// fetch returns a published generation as a local file, opened.
func (r *run) fetch(ctx context.Context, number uint64) (*manifest.Snapshot, error) {
	g, err := r.generation(ctx, number)
	if err != nil {
		return nil, err
	}
	dir, err := cachePath(r.p, "manifests", r.location.String())
	if err != nil {
		return nil, err
	}
	path, err := publish.Fetch(ctx, r.bucket, g, dir, nil)
	if err != nil {
		return nil, err
	}
	r.fetched, r.fetchDir = append(r.fetched, g), dir
	return r.open(path)
}

// look opens a published generation where it lies: only the parts that are needed
// are read.
func (r *run) look(ctx context.Context, number uint64) (*manifest.Snapshot, error) {
	g, err := r.generation(ctx, number)
	if err != nil {
		return nil, err
	}
	s, err := manifest.OpenSnapshotAt(fmt.Sprintf("generation %d of %s", g.Number, r.location),
		rangedFile{ctx: ctx, bucket: r.bucket, object: g.Object}, g.Object.Size, manifest.SnapshotConfig{})
	if err != nil {
		return nil, err
	}
	r.opened = append(r.opened, s)
	return s, nil
}

// rangedFile reads an object by ranges.
type rangedFile struct {
	ctx    context.Context //nolint:containedctx // ReadAt has none, and a command has one for its whole life
	bucket oss.RangeReader
	object oss.Object
}

// ReadAt implements [io.ReaderAt].
func (f rangedFile) ReadAt(b []byte, offset int64) (int, error) {
	if offset < 0 || offset+int64(len(b)) > f.object.Size {
		return 0, fmt.Errorf("read %q: there are %d bytes, and %d from %d on were asked for", f.object.Key, f.object.Size, len(b), offset)
	}
	if len(b) == 0 {
		return 0, nil
	}
	if _, err := f.bucket.ReadRange(f.ctx, oss.RangeRequest{Object: f.object, Offset: offset, Buffer: b}); err != nil {
		return 0, err
	}
	return len(b), nil
}

// cachePath returns the directory for what this user's commands keep of a kind, for
// something called name.
func cachePath(p command.Program, kind, name string) (string, error) {
	base := p.Env("XDG_CACHE_HOME")
	if home := p.Env("HOME"); base == "" && home != "" {
		if info, err := os.Stat(home); err == nil && info.IsDir() {
			base = filepath.Join(home, ".cache")
		}
	}
	if base == "" {
		base = filepath.Join("/var/tmp", fmt.Sprintf("pailfs-%d", os.Getuid()))
		if err := os.MkdirAll(base, 0o700); err != nil {
			return "", err
		}
		// The directory above is everybody's: somebody else may have been first.
		info, err := os.Lstat(base)
		if err != nil {
			return "", err
		}
		var st unix.Stat_t
		if err := unix.Lstat(base, &st); err != nil {
			return "", err
		}
		if !info.IsDir() || int(st.Uid) != os.Getuid() {
			return "", fmt.Errorf("%s is not a directory of this user: set XDG_CACHE_HOME to one", base)
		}
	}
	sum := sha256.Sum256([]byte(name))
	return filepath.Join(base, "pailfs", kind, hex.EncodeToString(sum[:8])), nil
}

// orInterrupted returns err, or what to say when a signal has ended ctx.
func orInterrupted(ctx context.Context, err error, advice string) error {
	if err != nil && ctx.Err() != nil {
		return errors.New("interrupted" + advice)
	}
	return err
}

// source is what a user names a manifest by: a bucket, where it is published, or a
// file.
type source struct {
	location config.Location
	file     string
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *source) UnmarshalText(text []byte) error {
	if strings.HasPrefix(string(text), "oss://") {
		return s.location.UnmarshalText(text)
	}
	s.file = string(text)
	return nil
}

// run returns a run for a source. One for a file has no connection.
func (s *source) run(ctx context.Context, p command.Program, parsed *kong.Context, flags *reach.StoreFlags) (*run, error) {
	if s.file != "" {
		return &run{p: p}, nil
	}
	return openRun(ctx, p, parsed, flags, s.location)
}

// shortDuration writes how long something took.
func shortDuration(d time.Duration) string {
	if d < 10*time.Second {
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// ExitDiffers is the exit code of verify and diff when what they compare differs.
const ExitDiffers = 4
