package build

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
)

// Bucket is what a build asks of the object store.
type Bucket interface {
	oss.RangeReader
	oss.Lister
	oss.Stater
}

// Config says what is built. Bucket, Name, StateDir and Source are required.
type Config struct {
	// Bucket holds the objects, Name is its name.
	Bucket Bucket
	Name   string
	// Prefix limits the manifest to the keys that begin with it: empty, or ending
	// with a slash.
	Prefix string
	// Source is where the keys come from.
	Source Source
	// Attrs asks for the metadata of every object, once, and keeps what it says of
	// mode, owner, group and time.
	Attrs bool
	// StateDir keeps finished work until Forget; it is made if missing. Work that
	// nobody went on with for a day is dropped.
	StateDir string
	// Restart drops unfinished work that is in StateDir.
	Restart bool
	// Output is the file of the manifest; empty means [ManifestFile] in StateDir.
	Output string
	// Number gives the manifest its generation, when everything is read; nil means 0.
	Number func(context.Context) (uint64, error)
	// Parallel is how many requests are made at once; 0 means 64.
	Parallel int
	// MemoryBytes is how much is sorted in memory before it goes to disk; 0 means
	// the Builder's default.
	MemoryBytes int64
	// BuiltBy is recorded in the manifest.
	BuiltBy string
	// Log is told what is unusual; nil means nobody.
	Log *slog.Logger
}

// Source is where keys come from: a [Listing], an [Inventory] or [Keys].
type Source interface {
	// describe names the source, in a way that tells it from every other.
	describe() string
	// read passes everything that done does not cover to the build.
	read(ctx context.Context, b *Build, done []cover) error
	// base gives the build what the source takes from elsewhere. It is called before
	// the log is replayed, each time.
	base(ctx context.Context, b *Build) error
	// properties are added to those of the manifest.
	properties() map[string]string
	// period returns from when to when the source speaks of, zero times for as long
	// as it was read.
	period() (began, ended time.Time)
}

// Result is what a build made.
type Result struct {
	// Path is the manifest's file.
	Path string
	// Header and Summary are what the manifest says of itself.
	Header  manifest.Header
	Summary manifest.Summary
	// Resumed says that an earlier process had begun; Replayed is how many objects
	// it had done.
	Resumed  bool
	Replayed int64
	// Missing counts objects that the source named and that are gone.
	Missing int64
}

// Phase is what a build is doing.
type Phase int32

// The phases of a build, in order.
const (
	// Replaying reads what an earlier process had finished.
	Replaying Phase = iota
	// Reading reads the source.
	Reading
	// Writing sorts and writes the manifest.
	Writing
)

// String names the phase for people.
func (p Phase) String() string {
	return [...]string{"resuming", "reading", "writing"}[p]
}

// Progress is how far a build has come.
type Progress struct {
	Phase          Phase
	Objects, Bytes int64
	// Units and OfUnits count the files of an inventory or the keys of a list; 0 of 0
	// where nothing can be known.
	Units, OfUnits int64
}

// Build is one manifest in the making. It is used by one goroutine, but for
// Progress.
type Build struct {
	cfg     Config
	state   *state
	builder *manifest.Builder
	log     *progress
	done    []cover
	// ended is when an earlier process had read the whole source.
	ended    time.Time
	replayed int64

	phase                          atomic.Int32
	objects, bytes, units, ofUnits atomic.Int64
	missing                        atomic.Int64
}

// Open begins a build, or goes on with the one in the state directory. The Build
// must be closed.
func Open(cfg Config) (*Build, error) {
	if cfg.Parallel == 0 {
		cfg.Parallel = 64
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Prefix != "" && !strings.HasSuffix(cfg.Prefix, "/") {
		return nil, fmt.Errorf("prefix %q does not end with a slash", cfg.Prefix)
	}
	st, err := openState(cfg.StateDir, plan{
		Version: planVersion, Bucket: cfg.Name, Prefix: cfg.Prefix, Source: cfg.Source.describe(), Attrs: cfg.Attrs,
		Began: time.Now().UTC(),
	}, cfg.Restart)
	if err != nil {
		return nil, err
	}
	if cfg.Output == "" {
		cfg.Output = st.path(ManifestFile)
	}
	b := &Build{cfg: cfg, state: st}
	b.builder, err = manifest.NewBuilder(manifest.BuilderConfig{
		Root: cfg.Prefix, SpillDir: st.path(spillDir), MemoryBytes: cfg.MemoryBytes,
	})
	if err != nil {
		return nil, errors.Join(err, st.close())
	}
	return b, nil
}

// Resumed reports whether an earlier process began this build, and when.
func (b *Build) Resumed() (began time.Time, resumed bool) {
	return b.state.plan.Began, b.state.resumed
}

// Dropped returns when unfinished work that was too old to go on with, and is gone,
// had last been done; the zero time if there was none.
func (b *Build) Dropped() time.Time { return b.state.dropped }

// Progress returns how far the build is. It may be called from any goroutine.
func (b *Build) Progress() Progress {
	return Progress{
		Phase: Phase(b.phase.Load()), Objects: b.objects.Load(), Bytes: b.bytes.Load(),
		Units: b.units.Load(), OfUnits: b.ofUnits.Load(),
	}
}

// Run builds. What it has finished stays in the state directory, whether it
// succeeds or not, until Forget.
func (b *Build) Run(ctx context.Context) (Result, error) {
	if err := b.read(ctx); err != nil {
		return Result{}, err
	}
	b.phase.Store(int32(Writing))
	header := manifest.Header{
		Began: b.state.plan.Began, Ended: b.ended, BuiltBy: b.cfg.BuiltBy, Source: b.cfg.Source.describe(),
		Properties: map[string]string{manifest.BucketProperty: b.cfg.Name, "attrs": yesNo(b.cfg.Attrs)},
	}
	maps.Copy(header.Properties, b.cfg.Source.properties())
	if began, ended := b.cfg.Source.period(); !began.IsZero() {
		header.Began, header.Ended = began, ended
	}
	if b.cfg.Number != nil {
		var err error
		if header.Generation, err = b.cfg.Number(ctx); err != nil {
			return Result{}, err
		}
	}
	summary, err := b.builder.Finish(ctx, b.cfg.Output, header)
	if err != nil {
		return Result{}, err
	}
	return Result{
		Path: b.cfg.Output, Header: header, Summary: summary,
		Resumed: b.state.resumed, Replayed: b.replayed, Missing: b.missing.Load(),
	}, nil
}

// read replays what is done and reads the rest of the source.
func (b *Build) read(ctx context.Context) error {
	b.phase.Store(int32(Replaying))
	err := b.cfg.Source.base(ctx, b)
	if err != nil {
		return err
	}
	b.log, b.ended, err = openProgress(b.state.path(progressFile), func(done batch) error {
		b.done = append(b.done, done.covers)
		b.replayed += int64(len(done.records))
		if err := ctx.Err(); err != nil {
			return err
		}
		return b.take(&done)
	})
	if err != nil {
		return err
	}
	if !b.ended.IsZero() {
		return nil
	}
	b.phase.Store(int32(Reading))
	if err := b.cfg.Source.read(ctx, b, b.done); err != nil {
		return err
	}
	b.done = nil
	b.ended = time.Now().UTC()
	return b.log.end(b.ended)
}

// put logs a finished batch and gives it to the builder. It may be called from many
// goroutines.
func (b *Build) put(done *batch) error {
	if err := b.log.add(done); err != nil {
		return err
	}
	return b.take(done)
}

// take gives a batch to the builder.
func (b *Build) take(done *batch) error {
	bytes := int64(0)
	if err := b.builder.AddAll(done.records); err != nil {
		return err
	}
	for i := range done.records {
		bytes += done.records[i].Size
	}
	b.objects.Add(int64(len(done.records)))
	b.bytes.Add(bytes)
	return nil
}

// Forget removes what the build kept, the manifest included if it has no output of
// its own. It is called when the result is safe.
func (b *Build) Forget() error { return b.state.forget() }

// Close ends the build. Unless it is forgotten, another can go on with it.
func (b *Build) Close() error {
	err := b.builder.Close()
	if b.log != nil {
		err = errors.Join(err, b.log.close())
	}
	return errors.Join(err, b.state.close())
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// ownPrefix begins the keys that are pailfs's own, at the root of a bucket and
// below a published prefix.
const ownPrefix = ".pailfs/"

// own reports whether key is one of pailfs's own, which no manifest holds.
func (b *Build) own(key string) bool {
	return strings.HasPrefix(key, ownPrefix) ||
		strings.HasPrefix(key, b.cfg.Prefix) && strings.HasPrefix(key[len(b.cfg.Prefix):], ownPrefix)
}
