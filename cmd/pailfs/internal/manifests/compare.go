package manifests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/alecthomas/kong"
	"github.com/dustin/go-humanize"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/reach"
	"github.com/pailfs/pailfs/cmd/terminal"
	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/manifest/build"
	"github.com/pailfs/pailfs/manifest/publish"
)

// verifyCmd is `pailfs manifest verify`.
type verifyCmd struct {
	Source     config.Location `arg:"" placeholder:"oss://BUCKET[/PREFIX]" help:"The bucket to compare with."`
	File       string          `name:"file" placeholder:"FILE" help:"Compare this file, not what is published."`
	Generation uint64          `name:"generation" placeholder:"N" help:"This published generation, not the newest."`
	Full       bool            `name:"full" help:"List everything, and compare everything."`
	Samples    int             `name:"samples" placeholder:"N" default:"1000" help:"How many objects are asked for, and a twentieth as many pages listed, without --full."`
	Seed       uint64          `name:"seed" placeholder:"N" help:"Choose the same samples again; without it by the clock."`
	Limit      int             `name:"limit" placeholder:"N" default:"20" help:"How many differences are printed; -1 prints all."`
	Parallel   int             `name:"parallel" placeholder:"N" default:"64" help:"How many requests are made at once."`
	JSON       bool            `name:"json" help:"Print the result as JSON."`
	reach.StoreFlags
}

// Help gives examples.
func (verifyCmd) Help() string {
	return `A sample finds what is missing or changed among the objects that it asks for, and what is new on the pages that it lists. Only --full can say that nothing differs.

Exit codes: 0 no difference found, 1 failed, 2 wrong arguments or configuration, 4 there are differences.

Examples:

	pailfs manifest verify oss://bucket/imagenet
	pailfs manifest verify oss://bucket/imagenet --full
	pailfs manifest verify oss://bucket/imagenet --file ./imagenet.manifest --samples 10000 --json`
}

// comparison is what verify and diff print as JSON.
type comparison struct {
	Older string `json:"older"`
	Newer string `json:"newer"`
	// Full says that everything was compared.
	Full bool `json:"full"`
	build.Counts
	Differences []shownDifference `json:"differences"`
	Seed        uint64            `json:"seed,omitempty"`
}

// shownDifference is one key that differs.
type shownDifference struct {
	Kind build.DifferenceKind `json:"kind"`
	Key  string               `json:"key"`
	Old  *shownVersion        `json:"old,omitempty"`
	New  *shownVersion        `json:"new,omitempty"`
}

// shownVersion is what a key holds.
type shownVersion struct {
	Size int64     `json:"size"`
	ETag string    `json:"etag"`
	Time time.Time `json:"time,omitzero"`
}

// differencePrinter prints or gathers differences up to a limit.
type differencePrinter struct {
	p     command.Program
	json  bool
	limit int
	found []shownDifference
	told  int
}

// tell takes one difference.
func (d *differencePrinter) tell(one build.Difference) error {
	if d.limit >= 0 && d.told >= d.limit {
		return nil
	}
	d.told++
	if !d.json {
		fmt.Fprintln(d.p.Stdout, showDifference(&one))
		return nil
	}
	out := shownDifference{Kind: one.Kind, Key: one.Key()}
	if one.Kind != build.Added {
		out.Old = &shownVersion{one.Old.Size, one.Old.ETag, one.Old.ModTime}
	}
	if one.Kind != build.Removed {
		out.New = &shownVersion{one.New.Size, one.New.ETag, one.New.ModTime}
	}
	d.found = append(d.found, out)
	return nil
}

// finish prints the sum and returns the error that the exit code comes from.
func (d *differencePrinter) finish(c comparison) error {
	c.Differences = d.found
	if d.json {
		if c.Differences == nil {
			c.Differences = []shownDifference{}
		}
		if err := d.p.PrintJSON(c); err != nil {
			return err
		}
	} else {
		if more := c.Added + c.Removed + c.Changed - int64(d.told); more > 0 {
			fmt.Fprintf(d.p.Stdout, "... and %s more\n", humanize.Comma(more))
		}
		of := "of the samples"
		if c.Full {
			of = "in all"
		}
		fmt.Fprintf(d.p.Stdout, "%s added, %s removed, %s changed, %s the same, %s\n", humanize.Comma(c.Added), humanize.Comma(c.Removed),
			humanize.Comma(c.Changed), humanize.Comma(c.Same), of)
	}
	if c.Any() {
		return &command.Error{Code: ExitDiffers, Err: fmt.Errorf("%s and %s differ", c.Older, c.Newer)}
	}
	return nil
}

// showDifference writes a difference as a line.
func showDifference(d *build.Difference) string {
	sign := map[build.DifferenceKind]string{build.Added: "+", build.Removed: "-", build.Changed: "~"}[d.Kind]
	switch d.Kind {
	case build.Added:
		return fmt.Sprintf("%s %q %d bytes, %s", sign, d.New.Key, d.New.Size, d.New.ModTime.Format(time.RFC3339))
	case build.Removed:
		return fmt.Sprintf("%s %q %d bytes, %s", sign, d.Old.Key, d.Old.Size, d.Old.ModTime.Format(time.RFC3339))
	default:
		return fmt.Sprintf("%s %q %d bytes, %s to %d bytes, %s", sign, d.Old.Key, d.Old.Size, d.Old.ModTime.Format(time.RFC3339),
			d.New.Size, d.New.ModTime.Format(time.RFC3339))
	}
}

// Run verifies.
func (c *verifyCmd) Run(p command.Program, parsed *kong.Context) error {
	switch {
	case c.File != "" && c.Generation != 0:
		return command.Usage(errors.New("--file and --generation exclude each other"))
	case c.Samples < 1:
		return command.Usage(fmt.Errorf("--samples %d: want at least 1", c.Samples))
	case c.Parallel < 1 || c.Parallel > 4096:
		return command.Usage(fmt.Errorf("--parallel %d: want 1 to 4096", c.Parallel))
	}
	ctx, cancel := command.Interruptible()
	defer cancel()
	r, err := openRun(ctx, p, parsed, &c.StoreFlags, c.Source)
	if err != nil {
		return orInterrupted(ctx, err, "")
	}
	return errors.Join(orInterrupted(ctx, c.verify(ctx, r), ""), r.close())
}

func (c *verifyCmd) verify(ctx context.Context, r *run) error {
	var s *manifest.Snapshot
	var err error
	name := c.File
	if c.File != "" {
		s, err = r.open(c.File)
	} else {
		name = "the manifest"
		s, err = r.fetch(ctx, c.Generation)
	}
	if err != nil {
		return err
	}
	if root := s.Info().Root; root != c.Source.Prefix {
		return fmt.Errorf("the manifest is of %q, not of %q: name what it is of", root, c.Source.Prefix)
	}
	out := differencePrinter{p: r.p, json: c.JSON, limit: c.Limit}
	result := comparison{Older: name, Newer: c.Source.String(), Full: c.Full}
	if c.Full {
		result.Counts, err = c.compareAll(ctx, r, s, out.tell)
	} else {
		if result.Seed = c.Seed; result.Seed == 0 {
			result.Seed = uint64(time.Now().UnixNano())
		}
		var done, all atomic.Int64
		sample := build.Sample{
			Snapshot: s, Bucket: r.bucket, Prefix: c.Source.Prefix, Objects: c.Samples, Pages: max(1, c.Samples/20),
			Parallel: c.Parallel, Seed: result.Seed, Tell: out.tell,
			Progress: func(n, of int64) { done.Store(n); all.Store(of) },
		}
		stop := terminal.NewProgress(r.p.Stderr).Watch(func(v *terminal.Progress) { v.Show("comparing", done.Load(), all.Load()) })
		result.Counts, err = sample.Run(ctx)
		stop()
	}
	if err != nil {
		return err
	}
	return out.finish(result)
}

// compareAll builds another manifest, from a listing, and compares.
func (c *verifyCmd) compareAll(ctx context.Context, r *run, s *manifest.Snapshot, tell func(build.Difference) error) (build.Counts, error) {
	dir, err := cachePath(r.p, "verify", fmt.Sprintf("%s %d", c.Source, os.Getpid()))
	if err != nil {
		return build.Counts{}, err
	}
	b, err := build.Open(build.Config{
		Bucket: r.bucket, Name: c.Source.Bucket, Prefix: c.Source.Prefix, Source: &build.Listing{Old: s},
		StateDir: dir, Restart: true, Parallel: c.Parallel, Log: r.conn.Log,
	})
	if err != nil {
		return build.Counts{}, err
	}
	stop := terminal.NewProgress(r.p.Stderr).Watch(func(v *terminal.Progress) {
		v.Show("listing", b.Progress().Objects, s.Info().Objects)
	})
	result, err := b.Run(ctx)
	stop()
	var counts build.Counts
	if err == nil {
		var now *manifest.Snapshot
		if now, err = r.open(result.Path); err == nil {
			counts, err = build.Diff(ctx, s, now, "", tell)
		}
	}
	return counts, errors.Join(err, b.Forget(), b.Close())
}

// diffCmd is `pailfs manifest diff`.
type diffCmd struct {
	Older      source   `arg:"" placeholder:"oss://BUCKET[/PREFIX]|FILE" help:"The older manifest, published or a file."`
	Newer      source   `arg:"" optional:"" placeholder:"oss://BUCKET[/PREFIX]|FILE" help:"The newer one; without it two generations of the first are compared."`
	Generation []uint64 `name:"generation" placeholder:"N" sep:"," help:"Which published generations: one a published manifest named, or two. Without it the newest and the one before."`
	Prefix     string   `name:"below" placeholder:"KEY" help:"Compare only keys that begin with this."`
	Limit      int      `name:"limit" placeholder:"N" default:"-1" help:"How many differences are printed; -1 prints all."`
	JSON       bool     `name:"json" help:"Print the result as JSON."`
	reach.StoreFlags
}

// Help gives examples.
func (diffCmd) Help() string {
	return `Every key that differs is a line: + added, - removed, ~ changed.

Exit codes: 0 they are the same, 1 failed, 2 wrong arguments or configuration, 4 they differ.

Examples:

	pailfs manifest diff oss://bucket/imagenet
	pailfs manifest diff oss://bucket/imagenet --generation 11,12
	pailfs manifest diff ./old.manifest ./new.manifest
	pailfs manifest diff ./old.manifest oss://bucket/imagenet --generation 12`
}

// Run compares.
func (c *diffCmd) Run(p command.Program, parsed *kong.Context) error {
	ctx, cancel := command.Interruptible()
	defer cancel()
	older, newer, closeAll, err := c.open(ctx, p, parsed)
	if err != nil {
		return orInterrupted(ctx, errors.Join(err, closeAll()), "")
	}
	if a, b := older.snapshot.Info().Root, newer.snapshot.Info().Root; a != b && c.Prefix == "" {
		return errors.Join(fmt.Errorf("one manifest is of %q and the other of %q: name the part to compare with --below", a, b), closeAll())
	}
	out := differencePrinter{p: p, json: c.JSON, limit: c.Limit}
	counts, err := build.Diff(ctx, older.snapshot, newer.snapshot, c.Prefix, out.tell)
	if err == nil {
		err = out.finish(comparison{Older: older.name, Newer: newer.name, Full: true, Counts: counts})
	}
	return errors.Join(orInterrupted(ctx, err, ""), closeAll())
}

// compared is one side of a comparison.
type compared struct {
	snapshot *manifest.Snapshot
	name     string
}

// open opens both sides.
func (c *diffCmd) open(ctx context.Context, p command.Program, parsed *kong.Context) (older, newer compared, closeAll func() error, err error) {
	var runs []*run
	closeAll = func() error {
		var failed error
		for _, r := range slices.Backward(runs) {
			failed = errors.Join(failed, r.close())
		}
		return failed
	}
	sides := []*source{&c.Older, &c.Newer}
	published := 0
	for _, s := range sides {
		if s.location.Bucket != "" {
			published++
		}
	}
	if c.Newer == (source{}) {
		if c.Older.file != "" {
			return older, newer, closeAll, command.Usage(errors.New("one file cannot be compared: name another"))
		}
		sides[1], published = &c.Older, 2
	}
	if len(c.Generation) > published {
		return older, newer, closeAll, command.Usage(fmt.Errorf("--generation names %d generations, and there are %d published manifests to compare", len(c.Generation), published))
	}
	var run, conn *run // conn is the first with a connection, which others share
	generations := c.Generation
	var out [2]compared
	for i, s := range sides {
		switch {
		case s.file != "" || conn == nil:
			run, err = s.run(ctx, p, parsed, &c.StoreFlags)
		case s.location != run.location:
			run, err = conn.at(ctx, s.location)
		default:
			run = conn
		}
		if err != nil {
			return older, newer, closeAll, err
		}
		if run != conn {
			runs = append(runs, run)
		}
		if run.conn != nil && conn == nil {
			conn = run
		}
		if s.file != "" {
			out[i].name = s.file
			out[i].snapshot, err = run.open(s.file)
		} else {
			if len(generations) == 0 && sides[0] == sides[1] {
				if generations, err = lastTwo(ctx, run); err != nil {
					return older, newer, closeAll, err
				}
			}
			number := uint64(0)
			if len(generations) > 0 {
				number, generations = generations[0], generations[1:]
			}
			out[i].snapshot, err = run.fetch(ctx, number)
			if err == nil {
				out[i].name = fmt.Sprintf("generation %d", out[i].snapshot.Info().Generation)
			}
		}
		if err != nil {
			return older, newer, closeAll, err
		}
	}
	return out[0], out[1], closeAll, nil
}

// lastTwo returns the newest published generation and the one before, older first.
func lastTwo(ctx context.Context, r *run) ([]uint64, error) {
	all, err := publish.List(ctx, r.bucket, r.location.Prefix)
	if err != nil {
		return nil, err
	}
	if len(all) < 2 {
		return nil, fmt.Errorf("%d generations of %s are published: there are no two to compare", len(all), r.location)
	}
	return []uint64{all[len(all)-2].Number, all[len(all)-1].Number}, nil
}

// jsonLine writes v as one line.
func jsonLine(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}
