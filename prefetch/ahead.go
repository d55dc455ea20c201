package prefetch

import (
	"context"
	"strings"
	"time"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
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

// guesses are the directories in which files are opened that nobody announced.
type guesses struct {
	dirs   map[string]*watched
	ahead  []aheadFile
	behind []aheadFile
	// inFlight bounds what is fetched behind to the room that is free.
	inFlight int64
}

type aheadFile struct {
	dir *watched
	obj oss.Object
}

func (g *guesses) init() { g.dirs = make(map[string]*watched) }

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

// runAccesses watches what is opened, until ctx ends.
func (p *Prefetcher) runAccesses(ctx context.Context) {
	accesses := p.cache.Accesses()
	for {
		select {
		case <-ctx.Done():
			return
		case o := <-accesses:
			p.accessed(ctx, o)
		}
	}
}

// accessed notes that o is read.
func (p *Prefetcher) accessed(ctx context.Context, o oss.Object) {
	now := time.Now()
	p.mu.Lock()
	if e := p.mu.readers[o]; e != nil {
		p.mu.book.Read(now, e)
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	rest, ok := strings.CutPrefix(o.Key, p.cfg.Prefix)
	if !ok || !p.cfg.Guess {
		return
	}
	dir := ""
	if i := strings.LastIndexByte(rest, '/'); i >= 0 {
		dir = rest[:i]
	}
	p.mu.Lock()
	w := p.watchLocked(dir, now)
	w.opens++
	list := w.files == nil && !w.listing && w.opens >= orderedAfter
	w.listing = w.listing || list
	p.mu.Unlock()
	if list {
		p.list(ctx, w)
	}
	p.mu.Lock()
	p.followLocked(w, o)
	p.mu.Unlock()
	p.sched.wake()
}

// watchLocked returns the record of a directory. The one used longest ago makes
// way for a new one.
func (p *Prefetcher) watchLocked(dir string, now time.Time) *watched {
	g := &p.mu.guesses
	w := g.dirs[dir]
	if w == nil {
		if len(g.dirs) >= maxDirs {
			var oldest *watched
			for _, o := range g.dirs {
				if oldest == nil || o.used.Before(oldest.used) {
					oldest = o
				}
			}
			delete(g.dirs, oldest.dir)
		}
		w = &watched{dir: dir, high: -1}
		g.dirs[dir] = w
	}
	w.used = now
	return w
}

// list reads the names of a directory. It happens once for each that is watched,
// and of a manifest costs no request.
func (p *Prefetcher) list(ctx context.Context, w *watched) {
	var files []oss.Object
	place := make(map[string]int)
	after := ""
	for len(files) < maxListed {
		entries, _, err := p.tree.ReadDir(ctx, w.dir, after, pageSize)
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
	p.mu.Lock()
	defer p.mu.Unlock()
	w.files, w.place, w.listing = files, place, false
}

// followLocked decides what the open of o lets one guess.
func (p *Prefetcher) followLocked(w *watched, o oss.Object) {
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
	g := &p.mu.guesses
	if w.run >= orderedAfter {
		w.issued = max(w.issued, w.high+1)
		bytes := int64(0)
		for i := w.high + 1; i < w.issued && i < len(w.files); i++ {
			bytes += w.files[i].Size
		}
		limit := min(int64(aheadBytes), p.cache.Stats().Memory.Limit)
		for w.issued < len(w.files) && w.issued <= w.high+aheadFiles && bytes < limit {
			g.ahead = append(g.ahead, aheadFile{w, w.files[w.issued]})
			bytes += w.files[w.issued].Size
			w.issued++
		}
		return
	}
	if w.opens >= behindAfter && !w.behind && len(w.files) > 0 {
		w.behind = true
		for _, f := range w.files {
			g.behind = append(g.behind, aheadFile{w, f})
		}
	}
}

// nextAhead is the source of what comes next in directories that are read in
// order.
func (p *Prefetcher) nextAhead() (job, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := &p.mu.guesses
	if len(g.ahead) == 0 {
		return job{}, false
	}
	f := g.ahead[0]
	g.ahead = g.ahead[1:]
	return p.guessed(f.obj, 0), true
}

// nextBehind is the source of the other files of directories of which many were
// opened. It takes only room that is free.
func (p *Prefetcher) nextBehind() (job, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := &p.mu.guesses
	if len(g.behind) == 0 {
		return job{}, false
	}
	stats := p.cache.Stats()
	if stats.SSD == nil {
		g.behind = nil
		return job{}, false
	}
	o := g.behind[0].obj
	cost := cache.Cost(o)
	if stats.SSD.Used+g.inFlight+cost > stats.SSD.Limit/10*9 {
		return job{}, false
	}
	g.behind = g.behind[1:]
	g.inFlight += cost
	return p.guessed(o, cost), true
}

// guessed returns the job that fetches o, of which nobody has said that it will be
// read.
func (p *Prefetcher) guessed(o oss.Object, behind int64) job {
	return job{obj: o, run: func() {
		ctx, cancel := context.WithTimeout(p.base, guessTimeout)
		defer cancel()
		p.cache.Hold(o)
		// It is a guess: whoever reads the file meets the error, if it is one.
		_ = p.cache.Fetch(ctx, o)
		p.cache.Unhold(o, false)
		if behind > 0 {
			p.mu.Lock()
			p.mu.guesses.inFlight -= behind
			p.mu.Unlock()
		}
	}}
}
