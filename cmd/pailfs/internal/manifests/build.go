package manifests

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/alecthomas/kong"
	"github.com/dustin/go-humanize"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/reach"
	"github.com/pailfs/pailfs/cmd/terminal"
	"github.com/pailfs/pailfs/manifest/build"
	"github.com/pailfs/pailfs/manifest/publish"
)

// makingFlags are the flags of the commands that make manifests.
type makingFlags struct {
	Output   string      `name:"output" short:"o" placeholder:"FILE" help:"Write the manifest to this file as well."`
	Publish  bool        `name:"publish" default:"true" negatable:"" help:"Publish it below the prefix, in .pailfs/manifests/."`
	Keep     int         `name:"keep" placeholder:"N" default:"5" help:"How many generations stay published; -1 keeps all."`
	State    string      `name:"state" placeholder:"DIR" help:"Where unfinished work is kept; without it in the user's cache directory."`
	Restart  bool        `name:"restart" help:"Drop unfinished work and begin anew."`
	Parallel int         `name:"parallel" placeholder:"N" default:"64" help:"How many requests are made at once."`
	Memory   config.Size `name:"sort-memory" placeholder:"SIZE" help:"Memory for sorting, 256MiB if not said; the rest goes to disk."`
	JSON     bool        `name:"json" help:"Print the result as JSON."`
}

// check refuses flags that cannot be meant.
func (f *makingFlags) check() error {
	switch {
	case !f.Publish && f.Output == "":
		return command.Usage(errors.New("--no-publish without --output would make nothing: name a file with --output"))
	case f.Parallel < 1 || f.Parallel > 4096:
		return command.Usage(fmt.Errorf("--parallel %d: want 1 to 4096", f.Parallel))
	case f.Keep == 0 || f.Keep < -1:
		return command.Usage(fmt.Errorf("--keep %d: want at least 1, or -1 for all", f.Keep))
	case f.Memory != 0 && f.Memory < 4<<20:
		return command.Usage(fmt.Errorf("--sort-memory %s: want at least 4MiB", f.Memory))
	}
	if f.Output != "" {
		if info, err := os.Stat(filepath.Dir(f.Output)); err != nil || !info.IsDir() {
			return command.Usage(fmt.Errorf("--output %s: %s is not a directory: make it, or choose another", f.Output, filepath.Dir(f.Output)))
		}
	}
	return nil
}

// buildCmd is `pailfs manifest build`.
type buildCmd struct {
	Source        config.Location `arg:"" placeholder:"oss://BUCKET[/PREFIX]" help:"What to write down: oss://bucket or oss://bucket/prefix."`
	FromInventory string          `name:"from-inventory" xor:"from" placeholder:"URL" help:"Read an OSS bucket inventory instead of listing: oss://bucket/.../manifest.json."`
	FromKeys      string          `name:"from-keys" xor:"from" placeholder:"FILE" help:"Ask for the keys of this list only, one a line; - is standard input."`
	Null          bool            `name:"null" short:"0" help:"The keys of --from-keys end with NUL, not with a newline."`
	AllowMissing  bool            `name:"allow-missing" help:"Leave out keys of --from-keys that do not exist, which is an error else."`
	Attrs         bool            `name:"attrs" help:"Ask for every object's metadata once, and keep mode, owner, group and time."`
	makingFlags
	reach.StoreFlags
}

// Help gives examples.
func (buildCmd) Help() string {
	return `The keys are listed with many requests at once, however unevenly they lie. What is done is kept: a build that was interrupted goes on when the same command is given again within a day.

The manifest is published below its prefix as a new generation, for which the key must be allowed to write there. Mounts find it with one request.

Exit codes: 0 built (and published), 1 failed, 2 wrong arguments or configuration.

Examples:

	pailfs manifest build oss://bucket/imagenet --endpoint https://oss-cn-hangzhou-internal.aliyuncs.com
	pailfs manifest build oss://bucket --from-inventory oss://logs/inventory/bucket/daily/2026-11-20T00-00Z/manifest.json
	pailfs manifest build oss://bucket/home --attrs
	pailfs manifest build oss://bucket --from-keys keys.txt --no-publish --output subset.manifest`
}

// Run builds.
func (c *buildCmd) Run(p command.Program, parsed *kong.Context) error {
	if err := c.check(); err != nil {
		return err
	}
	if c.FromKeys == "" && (c.Null || c.AllowMissing) {
		return command.Usage(errors.New("--null and --allow-missing are about --from-keys, which is not given"))
	}
	ctx, cancel := command.Interruptible()
	defer cancel()
	r, err := openRun(ctx, p, parsed, &c.StoreFlags, c.Source)
	if err != nil {
		return orInterrupted(ctx, err, "")
	}
	from, closeSource, err := c.source(ctx, r)
	if err != nil {
		return orInterrupted(ctx, errors.Join(err, r.close()), "")
	}
	m := making{run: r, flags: &c.makingFlags, source: from, attrs: c.Attrs, name: c.Source.String() + " " + c.FromInventory + c.FromKeys}
	err = m.do(ctx)
	return errors.Join(err, closeSource(), r.close())
}

// source opens what the flags name.
func (c *buildCmd) source(ctx context.Context, r *run) (build.Source, func() error, error) {
	nothing := func() error { return nil }
	switch {
	case c.FromInventory != "":
		name, key, err := reach.ParseObject(c.FromInventory)
		if err != nil {
			return nil, nil, command.Usage(fmt.Errorf("--from-inventory: %w", err))
		}
		bucket, err := r.conn.Unchecked(name)
		if err != nil {
			return nil, nil, err
		}
		v, err := build.OpenInventory(ctx, bucket, name, key, c.Source.Bucket)
		return v, nothing, err
	case c.FromKeys != "":
		k := build.Keys{Name: c.FromKeys, Null: c.Null, Bucket: c.Source.Bucket, AllowMissing: c.AllowMissing}
		if c.FromKeys == "-" {
			k.Lines = io.NopCloser(os.Stdin)
			return k, nothing, nil
		}
		f, err := os.Open(c.FromKeys)
		if err != nil {
			return nil, nil, command.Usage(fmt.Errorf("--from-keys: %w", err))
		}
		k.Lines = f
		return k, f.Close, nil
	default:
		return &build.Listing{}, nothing, nil
	}
}

// making is one manifest in the making, to its publication.
type making struct {
	run    *run
	flags  *makingFlags
	source build.Source
	attrs  bool
	// name tells the work from other work of this user.
	name string
	// compare, if set, is called with the finished file; publish is false if there is
	// nothing new to publish.
	compare func(path string) (publish bool, err error)
	// changes are what compare found.
	changes *build.Counts
}

// made is what `pailfs manifest build --json` prints.
type made struct {
	Source      string        `json:"source"`
	From        string        `json:"from"`
	File        string        `json:"file,omitempty"`
	Published   bool          `json:"published"`
	Generation  uint64        `json:"generation,omitempty"`
	Key         string        `json:"key,omitempty"`
	Objects     int64         `json:"objects"`
	Directories int64         `json:"directories"`
	Bytes       int64         `json:"bytes"`
	FileBytes   int64         `json:"file_bytes"`
	Duplicates  int64         `json:"duplicates"`
	Missing     int64         `json:"missing"`
	Problems    int64         `json:"problems"`
	Resumed     bool          `json:"resumed"`
	Replayed    int64         `json:"replayed_objects"`
	Began       time.Time     `json:"began"`
	Ended       time.Time     `json:"ended"`
	Seconds     float64       `json:"seconds"`
	Changes     *build.Counts `json:"changes,omitempty"`
}

// do builds, publishes and tells.
func (m *making) do(ctx context.Context) error {
	dir := m.flags.State
	if dir == "" {
		var err error
		if dir, err = cachePath(m.run.p, "builds", fmt.Sprintf("%s attrs=%v", m.name, m.attrs)); err != nil {
			return err
		}
	}
	cfg := build.Config{
		Bucket: m.run.bucket, Name: m.run.location.Bucket, Prefix: m.run.location.Prefix, Source: m.source, Attrs: m.attrs,
		StateDir: dir, Restart: m.flags.Restart, Output: m.flags.Output, Parallel: m.flags.Parallel,
		MemoryBytes: int64(m.flags.Memory), BuiltBy: builtBy(m.run.p.Version), Log: m.run.conn.Log,
	}
	if m.flags.Publish {
		cfg.Number = func(ctx context.Context) (uint64, error) {
			return publish.Next(ctx, m.run.bucket, m.run.location.Prefix)
		}
	}
	b, err := build.Open(cfg)
	if err != nil {
		return err
	}
	err = m.build(ctx, b)
	return orInterrupted(ctx, errors.Join(err, b.Close()), ": what is done is kept, give the same command again to go on")
}

// build runs b and publishes what it made.
func (m *making) build(ctx context.Context, b *build.Build) error {
	started := time.Now()
	if began, resumed := b.Resumed(); resumed {
		m.run.p.Notice("going on with the build that began at " + began.Local().Format(time.DateTime) + "; --restart would begin anew")
	}
	if at := b.Dropped(); !at.IsZero() {
		m.run.p.Notice("unfinished work of " + at.Local().Format(time.DateTime) + " is too old to go on with, and was dropped")
	}
	stop := terminal.NewProgress(m.run.p.Stderr).Watch(func(v *terminal.Progress) {
		at := b.Progress()
		doing := fmt.Sprintf("%s: %s objects, %s", at.Phase, humanize.Comma(at.Objects), terminal.Size(at.Bytes))
		v.Show(doing, at.Units, at.OfUnits)
	})
	result, err := b.Run(ctx)
	stop()
	if err != nil {
		return err
	}
	out := made{
		Source: m.run.location.String(), From: result.Header.Source, File: m.flags.Output,
		Objects: result.Summary.Objects, Directories: result.Summary.Directories, Bytes: result.Summary.Bytes,
		FileBytes: result.Summary.FileBytes, Duplicates: result.Summary.Duplicates, Missing: result.Missing,
		Problems: result.Summary.Problems, Resumed: result.Resumed, Replayed: result.Replayed,
		Began: result.Header.Began, Ended: result.Header.Ended,
	}
	wanted := m.flags.Publish
	if m.compare != nil {
		worth, err := m.compare(result.Path)
		if err != nil {
			return err
		}
		wanted = wanted && worth
		out.Changes = m.changes
	}
	if wanted {
		g, err := m.publish(ctx, &result)
		if g.Number == 0 && err != nil {
			return err
		}
		if err != nil {
			m.run.p.Notice(command.OneLine(err)) // what was asked for is done
		}
		out.Published, out.Generation, out.Key = true, g.Number, g.Object.Key
	}
	if err := b.Forget(); err != nil {
		return err
	}
	out.Seconds = time.Since(started).Seconds()
	return m.tell(&out)
}

// publish puts the finished file into the bucket.
func (m *making) publish(ctx context.Context, result *build.Result) (publish.Generation, error) {
	var done atomic.Int64
	stop := terminal.NewProgress(m.run.p.Stderr).Watch(func(v *terminal.Progress) { v.Show("publishing", done.Load(), result.Summary.FileBytes) })
	defer stop()
	return publish.Publish(ctx, m.run.bucket, m.run.location.Prefix, result.Path, publish.Facts{
		Number: result.Header.Generation, Objects: result.Summary.Objects, Bytes: result.Summary.Bytes,
		Began: result.Header.Began, Ended: result.Header.Ended, Publisher: publisherName(),
	}, publish.Options{Keep: m.flags.Keep, Progress: func(n int64) { done.Add(n) }})
}

// tell prints the result.
func (m *making) tell(out *made) error {
	if m.flags.JSON {
		return m.run.p.PrintJSON(out)
	}
	w := m.run.p.Stdout
	fmt.Fprintf(w, "%s: %s objects in %s directories, %s; manifest of %s, %s\n", out.Source, humanize.Comma(out.Objects),
		humanize.Comma(out.Directories), terminal.Size(out.Bytes), terminal.Size(out.FileBytes), shortDuration(time.Duration(out.Seconds*float64(time.Second))))
	if c := out.Changes; c != nil {
		fmt.Fprintf(w, "changes: %s added, %s removed, %s changed\n", humanize.Comma(c.Added), humanize.Comma(c.Removed), humanize.Comma(c.Changed))
	}
	if out.Duplicates > 0 {
		fmt.Fprintf(w, "%s keys were named more than once\n", humanize.Comma(out.Duplicates))
	}
	if out.Missing > 0 {
		fmt.Fprintf(w, "%s objects were gone when they were asked for, and are left out\n", humanize.Comma(out.Missing))
	}
	if out.Problems > 0 {
		fmt.Fprintf(w, "%s keys cannot be shown under their own name: see pailfs manifest show\n", humanize.Comma(out.Problems))
	}
	switch {
	case out.Published:
		fmt.Fprintf(w, "published as generation %d: oss://%s/%s\n", out.Generation, m.run.location.Bucket, out.Key)
	case m.flags.Publish:
		fmt.Fprintln(w, "nothing has changed: nothing was published")
	}
	if out.File != "" {
		fmt.Fprintf(w, "written to %s\n", out.File)
	}
	if out.Objects == 0 {
		m.run.p.Notice("there is no object: check the prefix if that is not so")
	}
	return nil
}

// builtBy is recorded in manifests.
func builtBy(version string) string {
	return "pailfs " + version + " " + runtime.GOOS + "/" + runtime.GOARCH
}

// publisherName says who published, for whom another publisher tells.
func publisherName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "an unnamed host"
	}
	return fmt.Sprintf("%s, process %d", host, os.Getpid())
}
