package manifest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/pailfs/pailfs/cache/durable"
	"github.com/pailfs/pailfs/manifest/keysort"
	"github.com/pailfs/pailfs/manifest/snapfile"
)

// BuilderConfig says what a manifest is built of and with what. The zero value is
// for a whole bucket.
type BuilderConfig struct {
	// Root begins every key: "" or a key that ends with a slash.
	Root string
	// SpillDir is where temporary files are written that do not fit into memory: about
	// 60 bytes an object. Empty means [os.TempDir]. They have no names, and are gone
	// when the program is.
	SpillDir string
	// MemoryBytes bounds what is kept in memory. Zero means 256 MiB; less than 4 MiB
	// is refused.
	MemoryBytes int64
}

// Header is what a manifest says of itself beside what is counted.
type Header struct {
	// Generation grows with each manifest of the same keys.
	Generation uint64
	// Began and Ended are when its making began and ended.
	Began, Ended time.Time
	// BuiltBy is the program that built it, Source what from.
	BuiltBy, Source string
	// Properties are whatever else should be known, 1,024 at most.
	Properties map[string]string
}

// BucketProperty is the property in which the maker of a manifest writes the bucket
// that it was made of.
const BucketProperty = "bucket"

// Summary says what was built.
type Summary struct {
	// Objects is how many keys there are, markers of directories included;
	// Directories how many directories, the root included; Bytes what the objects
	// hold.
	Objects, Directories, Bytes int64
	// FileBytes is the size of the manifest.
	FileBytes int64
	// Duplicates is how often a key was added that had been added before.
	Duplicates int64
	// Skipped is how many keys were pailfs's own.
	Skipped int64
	// Problems is how many keys are not shown under their own name.
	Problems int64
}

// Builder collects records and writes them as a manifest. It must be closed. Add
// may be called from many goroutines at once.
type Builder struct {
	cfg BuilderConfig
	// mu guards what follows.
	mu struct {
		sync.Mutex
		sorter  *keysort.Sorter
		skipped int64
		// known are directories whose row was added, and those of all above them.
		known   map[string]struct{}
		lastDir string
		done    bool
	}
}

// maxKnown bounds how many directories are remembered as added; to add one again
// does no harm.
const maxKnown = 1 << 16

// NewBuilder returns a builder of a manifest of the keys under cfg.Root.
func NewBuilder(cfg BuilderConfig) (*Builder, error) {
	if cfg.MemoryBytes == 0 {
		cfg.MemoryBytes = 256 << 20
	}
	if cfg.SpillDir == "" {
		cfg.SpillDir = os.TempDir()
	}
	switch {
	case cfg.Root != "" && !strings.HasSuffix(cfg.Root, "/"):
		return nil, fmt.Errorf("build manifest: root %q does not end with a slash", cfg.Root)
	case strings.HasPrefix(cfg.Root, ownPrefix):
		return nil, fmt.Errorf("build manifest: root %q: what is under %q is pailfs's own", cfg.Root, ownPrefix)
	case len(cfg.Root) > maxKey:
		return nil, fmt.Errorf("build manifest: root %.40q... has %d bytes, more than %d", cfg.Root, len(cfg.Root), maxKey)
	case cfg.MemoryBytes < 4<<20:
		return nil, fmt.Errorf("build manifest: memory of %d bytes is less than 4 MiB", cfg.MemoryBytes)
	}
	sorter, err := keysort.New(cfg.SpillDir, cfg.MemoryBytes)
	if err != nil {
		return nil, fmt.Errorf("build manifest: %w", err)
	}
	b := &Builder{cfg: cfg}
	b.mu.sorter = sorter
	b.mu.known = make(map[string]struct{})
	return b, nil
}

// Add takes in an object. Of several records with the same key the one that was
// added last stays. Keys that begin with ".pailfs/", or with that after the root,
// are passed over. It fails if the key is not under the root, has more than
// [snapfile.MaxKey] bytes, or if what does not fit into memory cannot be written.
func (b *Builder) Add(r Record) error { return b.AddAll([]Record{r}) }

// AddAll is as Add for each of the records, and sooner done for many.
func (b *Builder) AddAll(records []Record) error {
	values := make([]builderValue, len(records))
	space := make([]byte, 0, 48*len(records)) // most values are shorter
	for i := range records {
		var err error
		if values[i], space, err = b.value(&records[i], space); err != nil {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.done {
		return errors.New("build manifest: it is finished")
	}
	from := 0
	for _, v := range values {
		value := space[from:v.to]
		from = v.to
		if v.own {
			b.mu.skipped++
			continue
		}
		if err := b.addDirectories(v.dir); err != nil {
			return err
		}
		if err := b.mu.sorter.Add(v.dir, v.item, value); err != nil {
			return err
		}
	}
	return nil
}

// builderValue is a record that is about to be added.
type builderValue struct {
	dir, item string
	// own says that the key is one of pailfs's own.
	own bool
	// to is where its value ends among those of all.
	to int
}

// value returns what is to be added of r, and space with its value appended.
func (b *Builder) value(r *Record, space []byte) (builderValue, []byte, error) {
	item, ok := strings.CutPrefix(r.Key, b.cfg.Root)
	var err error
	switch {
	case !ok || r.Key == "":
		err = fmt.Errorf("build manifest: key %q is not under %q", r.Key, b.cfg.Root)
	case len(r.Key) > snapfile.MaxKey:
		err = fmt.Errorf("build manifest: key %.40q... has %d bytes, more than %d", r.Key, len(r.Key), snapfile.MaxKey)
	case r.Size < 0:
		err = fmt.Errorf("build manifest: key %q has a size of %d bytes", r.Key, r.Size)
	}
	if err != nil {
		return builderValue{}, space, err
	}
	row, err := r.row()
	if err != nil {
		return builderValue{}, space, fmt.Errorf("build manifest: %w", err)
	}
	slash := strings.LastIndexByte(item, '/') + 1
	space = row.AppendValue(space)
	return builderValue{dir: item[:slash], item: item[slash:], own: isOwn(r.Key, b.cfg.Root), to: len(space)}, space, nil
}

// addDirectories adds the rows of dir and of all directories above it to their
// parents. b.mu must be held.
func (b *Builder) addDirectories(dir string) error {
	if dir == b.mu.lastDir {
		return nil
	}
	for at := dir; at != ""; {
		if _, known := b.mu.known[at]; known {
			break
		}
		slash := strings.LastIndexByte(at[:len(at)-1], '/') + 1
		if err := b.mu.sorter.Add(at[:slash], at[slash:], nil); err != nil {
			return err
		}
		if len(b.mu.known) >= maxKnown {
			clear(b.mu.known)
		}
		b.mu.known[strings.Clone(at)] = struct{}{}
		at = at[:slash]
	}
	b.mu.lastDir = strings.Clone(dir)
	return nil
}

// Finish writes what was added as a manifest to path: a file that is there is
// replaced once the new one is whole and on disk, and not before. Nothing can be
// added after that.
func (b *Builder) Finish(ctx context.Context, path string, h Header) (Summary, error) {
	var sum Summary
	err := replaceFile(path, func(w io.Writer) (err error) {
		sum, err = b.FinishTo(ctx, w, h)
		return err
	})
	return sum, err
}

// FinishTo writes what was added as a manifest to w. Nothing can be added after
// that.
func (b *Builder) FinishTo(ctx context.Context, w io.Writer, h Header) (Summary, error) {
	entries, err := b.end(ctx)
	if err != nil {
		return Summary{}, err
	}
	sum, err := writeManifest(ctx, w, b.cfg.Root, h, entries)
	sum.Skipped = b.mu.skipped
	return sum, err
}

// FinishRun writes what was added, sorted, to path, for [BuildRuns]. A run that is
// there is replaced once the new one is whole and on disk. It returns how many keys
// were added that had been added before, and how many were pailfs's own. Nothing
// can be added after that.
func (b *Builder) FinishRun(ctx context.Context, path string) (duplicates, skipped int64, err error) {
	entries, err := b.end(ctx)
	if err != nil {
		return 0, 0, err
	}
	err = replaceFile(path, func(w io.Writer) error { return keysort.WriteRun(ctx, w, entries) })
	if err != nil {
		return 0, 0, fmt.Errorf("write run: %w", err)
	}
	return entries.Duplicates(), b.mu.skipped, nil
}

// end ends the adding and returns what was added, sorted.
func (b *Builder) end(ctx context.Context) (*keysort.Entries, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.done {
		return nil, errors.New("build manifest: it is finished")
	}
	b.mu.done = true
	entries, err := b.mu.sorter.Sorted(ctx)
	if err != nil {
		return nil, fmt.Errorf("build manifest: %w", err)
	}
	return entries, nil
}

// BuildRuns writes what the runs hold as a manifest of the keys under root to path,
// as [Builder.Finish] does. All runs must be of builders with that root. Of several
// records with the same key that of the last run stays. Temporary files are written
// in spillDir, "" for [os.TempDir], if there are more than 128 runs. A run that is
// not whole is refused.
func BuildRuns(ctx context.Context, path, root, spillDir string, h Header, runs []string) (sum Summary, err error) {
	if spillDir == "" {
		spillDir = os.TempDir()
	}
	var files []*os.File
	for _, name := range runs {
		f, err := keysort.OpenRun(name)
		if err != nil {
			for _, f := range files {
				err = errors.Join(err, f.Close())
			}
			return Summary{}, fmt.Errorf("build manifest: %w", err)
		}
		files = append(files, f)
	}
	sorter := keysort.Merge(spillDir, files)
	defer func() { err = errors.Join(err, sorter.Close()) }()
	entries, err := sorter.Sorted(ctx)
	if err != nil {
		return Summary{}, fmt.Errorf("build manifest: %w", err)
	}
	err = replaceFile(path, func(w io.Writer) (err error) {
		sum, err = writeManifest(ctx, w, root, h, entries)
		return err
	})
	return sum, err
}

// writeManifest writes entries as a manifest to w.
func writeManifest(ctx context.Context, w io.Writer, root string, h Header, entries *keysort.Entries) (Summary, error) {
	counted := &countingWriter{w: w}
	info := snapfile.Info{
		Generation: h.Generation, Began: h.Began, Ended: h.Ended, Root: root,
		BuiltBy: h.BuiltBy, Source: h.Source, Properties: h.Properties,
	}
	out, err := snapfile.NewWriter(counted, info)
	if err != nil {
		return Summary{}, err
	}
	f := rowFeeder{root: root, out: out}
	if err := f.feed(ctx, entries); err != nil {
		return Summary{}, fmt.Errorf("build manifest: %w", err)
	}
	if info, err = out.Finish(f.examples); err != nil {
		return Summary{}, err
	}
	return Summary{
		Objects: int64(info.Objects), Directories: int64(info.Directories), Bytes: int64(info.Bytes),
		FileBytes: counted.n, Duplicates: entries.Duplicates(), Problems: int64(info.Problems),
	}, nil
}

// Close removes temporary files. It may be called more than once.
func (b *Builder) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.done = true
	return b.mu.sorter.Close()
}

// countingWriter counts what is written.
type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

// replaceFile has write write a new file, and puts it in the place of path when it
// is on disk.
func replaceFile(path string, write func(io.Writer) error) error {
	if err := renameOver(path, write); err != nil {
		return err
	}
	if err := durable.SyncDirectory(filepath.Dir(path)); err != nil {
		return fmt.Errorf("sync directory of %s: %w", path, err)
	}
	return nil
}

// renameOver has write write a new file, and renames it to path.
func renameOver(path string, write func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".tmp-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, ignoreClosed(f.Close()), os.Remove(f.Name()))
		}
	}()
	w := bufio.NewWriterSize(f, 1<<20)
	if err := write(w); err != nil {
		return err
	}
	if err := errors.Join(w.Flush(), f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.Rename(f.Name(), path)
}

func ignoreClosed(err error) error {
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}
