package guess

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/prefetch/internal/scheduler"
)

const (
	// maxDirs is how many directories are watched, those used last.
	maxDirs = 64
	// orderedAfter is how many opens, each a little further on in the listing than
	// those before, make a directory one that is read in order.
	orderedAfter = 4
	// stride is how far apart two opens in order may be: readers that share a
	// directory take turns, batch by batch.
	stride = 64
	// aheadFiles and aheadBytes bound how far ahead of a reader in order files are
	// fetched.
	aheadFiles = 256
	aheadBytes = 256 << 20
	// behindAfter is how many files must have been opened in a directory, in any
	// order, before the rest of it is warmed behind.
	behindAfter = 64
	// guessTimeout bounds the fetch of one object that nobody asked for.
	guessTimeout = time.Minute
	// pageSize is how many names of a directory are asked for at once.
	pageSize = 512
	// maxListed is how many files of a directory are looked at.
	maxListed = 1 << 20
)

// Cache is what this package needs of a [cache.Cache].
type Cache interface {
	Fetch(ctx context.Context, obj oss.Object) error
	Hold(obj oss.Object)
	Unhold(obj oss.Object, released bool)
	Stats() cache.Stats
}

// Guesser watches the directories in which files are opened that nobody announced. It is safe
// for concurrent use.
type Guesser struct {
	tree   manifest.Tree
	cache  Cache
	prefix string

	mu struct {
		sync.Mutex
		dirs   map[string]*watched
		ahead  []aheadFile
		behind []aheadFile
		// inFlight bounds what is fetched behind to the room that is free.
		inFlight int64
	}
}

// New returns a Guesser for the names of a tree, of which the objects' keys begin with prefix.
func New(tree manifest.Tree, c Cache, prefix string) *Guesser {
	g := &Guesser{tree: tree, cache: c, prefix: prefix}
	g.mu.dirs = make(map[string]*watched)
	return g
}

type aheadFile struct {
	dir *watched
	obj oss.Object
}

// watched is a directory in which files are opened.
type watched struct {
	dir   string
	used  time.Time
	opens int
	// listing says that the names are being read.
	listing bool
	// files are the directory's in the order of its listing, place where each is.
	files []oss.Object
	place map[string]int
	// high is the furthest that was opened, run how many opens in order there were,
	// issued the first file that was not given to be fetched ahead.
	high, run, issued int
	// behind says that the rest of the directory was given to be warmed behind.
	behind bool
}

// Opened notes that o is opened, and reports whether something is to be fetched for that.
func (g *Guesser) Opened(ctx context.Context, o oss.Object) bool {
	rest, ok := strings.CutPrefix(o.Key, g.prefix)
	if !ok {
		return false
	}
	dir := ""
	if i := strings.LastIndexByte(rest, '/'); i >= 0 {
		dir = rest[:i]
	}
	g.mu.Lock()
	w := g.watchLocked(dir, time.Now())
	w.opens++
	list := w.files == nil && !w.listing && w.opens >= orderedAfter
	w.listing = w.listing || list
	g.mu.Unlock()
	if list {
		g.list(ctx, w)
	}
	g.mu.Lock()
	g.followLocked(w, o)
	g.mu.Unlock()
	return true
}

// watchLocked returns the record of a directory. The one used longest ago makes
// way for a new one.
func (g *Guesser) watchLocked(dir string, now time.Time) *watched {
	w := g.mu.dirs[dir]
	if w == nil {
		if len(g.mu.dirs) >= maxDirs {
			var oldest *watched
			for _, o := range g.mu.dirs {
				if oldest == nil || o.used.Before(oldest.used) {
					oldest = o
				}
			}
			delete(g.mu.dirs, oldest.dir)
		}
		w = &watched{dir: dir, high: -1}
		g.mu.dirs[dir] = w
	}
	w.used = now
	return w
}

// list reads the names of a directory. It happens once for each that is watched,
// and of a manifest costs no request.
func (g *Guesser) list(ctx context.Context, w *watched) {
	var files []oss.Object
	place := make(map[string]int)
	after := ""
	for len(files) < maxListed {
		entries, _, err := g.tree.ReadDir(ctx, w.dir, after, pageSize)
		if err != nil || len(entries) == 0 {
			break
		}
		for _, e := range entries {
			if e.Kind == manifest.File {
				place[e.Object.Key] = len(files)
				files = append(files, e.Object)
			}
		}
		after = entries[len(entries)-1].Cursor
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	w.files, w.place, w.listing = files, place, false
}

// followLocked decides what the open of o lets one guess.
func (g *Guesser) followLocked(w *watched, o oss.Object) {
	at, ok := w.place[o.Key]
	if !ok {
		return
	}
	switch {
	case w.high >= 0 && at > w.high && at <= w.high+stride:
		w.run++
		w.high = at
	case w.high >= 0 && at <= w.high && at >= w.high-stride:
		// Readers that take turns: neither for nor against.
	default:
		w.run, w.high, w.issued = 0, at, 0
	}
	if w.run >= orderedAfter {
		w.issued = max(w.issued, w.high+1)
		bytes := int64(0)
		for i := w.high + 1; i < w.issued && i < len(w.files); i++ {
			bytes += w.files[i].Size
		}
		limit := min(int64(aheadBytes), g.cache.Stats().Memory.Limit)
		for w.issued < len(w.files) && w.issued <= w.high+aheadFiles && bytes < limit {
			g.mu.ahead = append(g.mu.ahead, aheadFile{w, w.files[w.issued]})
			bytes += w.files[w.issued].Size
			w.issued++
		}
		return
	}
	if w.opens >= behindAfter && !w.behind && len(w.files) > 0 {
		w.behind = true
		for _, f := range w.files {
			g.mu.behind = append(g.mu.behind, aheadFile{w, f})
		}
	}
}

// NextAhead is the source of what comes next in directories that are read in
// order.
func (g *Guesser) NextAhead() (scheduler.Job, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.mu.ahead) == 0 {
		return scheduler.Job{}, false
	}
	f := g.mu.ahead[0]
	g.mu.ahead = g.mu.ahead[1:]
	return g.guessed(f.obj, 0), true
}

// NextBehind is the source of the other files of directories of which many were
// opened. It takes only room that is free.
func (g *Guesser) NextBehind() (scheduler.Job, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.mu.behind) == 0 {
		return scheduler.Job{}, false
	}
	stats := g.cache.Stats()
	if stats.SSD == nil {
		g.mu.behind = nil
		return scheduler.Job{}, false
	}
	o := g.mu.behind[0].obj
	cost := cache.Cost(o)
	if stats.SSD.Used+g.mu.inFlight+cost > stats.SSD.Limit/10*9 {
		return scheduler.Job{}, false
	}
	g.mu.behind = g.mu.behind[1:]
	g.mu.inFlight += cost
	return g.guessed(o, cost), true
}

// guessed returns the job that fetches o, of which nobody has said that it will be
// read.
func (g *Guesser) guessed(o oss.Object, behind int64) scheduler.Job {
	return scheduler.Job{Object: o, Run: func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, guessTimeout)
		defer cancel()
		g.cache.Hold(o)
		// It is a guess: whoever reads the file meets the error, if it is one.
		_ = g.cache.Fetch(ctx, o)
		g.cache.Unhold(o, false)
		if behind > 0 {
			g.mu.Lock()
			g.mu.inFlight -= behind
			g.mu.Unlock()
		}
	}}
}
