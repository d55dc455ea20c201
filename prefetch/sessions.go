package prefetch

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"sync"
	"time"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/prefetch/budget"
	"github.com/pailfs/pailfs/prefetch/internal/life"
	"github.com/pailfs/pailfs/prefetch/internal/scheduler"
	"github.com/pailfs/pailfs/prefetch/rights"
	"github.com/pailfs/pailfs/prefetch/session"
)

// resolvers is how many paths are looked up at once.
const resolvers = 32

// fetch is an entry whose objects are held in the cache, or are on their way.
type fetch struct {
	entry *session.Entry
	// life ends when nobody holds the entry any more.
	life life.Life
	// next is the first object that was not begun, left how many have not ended.
	next, left int
	err        error
	// ended says that the book was told what became of it, gone that nobody holds the
	// entry any more.
	ended, gone bool
}

// Opened is what [Prefetcher.Open] returns.
type Opened struct {
	Session session.ID
	Adopted int
	Quota   int
	Budget  int64
	Lease   time.Duration
	// Persistence says where the session's state is kept.
	Persistence Persistence
}

// Open opens, joins or adopts the session of key. One that the daemon does not
// know is looked for where the state is kept.
func (p *Prefetcher) Open(ctx context.Context, key session.Key, params session.Params) (Opened, error) {
	if err := p.mayOpen(key); err != nil {
		return Opened{}, err
	}
	saved, keeping := p.find(ctx, key, params)
	id := session.ID(p.cfg.NewID())
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	b := p.mu.book
	if saved != nil {
		restored := saved.params()
		restored.Who = params.Who
		b.Restore(now, id, key, restored, saved.Held)
	}
	got, adopted, err := b.Open(now, id, key, params)
	if err != nil {
		return Opened{}, err
	}
	quota, err := b.Quota(now, session.Name{Session: got, UID: key.UID, Handle: params.Handle})
	if err != nil {
		return Opened{}, err
	}
	budget, _ := b.Budget()
	keeping.left, keeping.who = false, params.Who
	p.mu.keeping[key] = keeping
	p.afterLocked()
	return Opened{Session: got, Adopted: adopted, Quota: quota, Budget: budget, Lease: b.Lease(got), Persistence: keeping.where}, nil
}

// mayOpen refuses who has too many sessions before anything is looked for.
func (p *Prefetcher) mayOpen(key session.Key) error {
	p.mu.Lock()
	_, known := p.mu.book.Params(key)
	known = known || p.mu.book.Yields(key.User())
	p.mu.Unlock()
	if known {
		return nil
	}
	return p.cfg.Ledger.Check(key.User(), budget.Sessions, 1)
}

// afterLocked follows every call that may have given the book something to do.
func (p *Prefetcher) afterLocked() {
	p.settleLocked()
	p.wakeResolve()
	p.sched.Wake()
}

// randomID returns a name that nobody can guess.
func randomID() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // it never fails: it would rather end the process
	return hex.EncodeToString(b[:])
}

// CloseSession ends a session; keep leaves what it holds under its lease.
func (p *Prefetcher) CloseSession(id session.ID, uid uint32, keep bool) (released int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key, err := p.mu.book.Find(time.Now(), id, uid)
	if err != nil {
		return 0, err
	}
	released, err = p.mu.book.Close(time.Now(), id, uid, keep)
	if k := p.mu.keeping[key]; k != nil {
		k.left, k.changed = keep, true
		if !keep && !k.filed && !k.shared {
			delete(p.mu.keeping, key)
			p.mu.book.Forget(key)
		}
	}
	p.afterLocked()
	return released, err
}

// Released notes that an open description by which sessions were called is closed: those
// whose last it was have lost their client.
func (p *Prefetcher) Released(handle uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.book.Released(time.Now(), handle)
	p.settleLocked() // who waits for room looks again
}

// Renew is a sign of life. It returns the lease.
func (p *Prefetcher) Renew(n session.Name) (time.Duration, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.book.Renew(time.Now(), n)
}

// Quota returns how many paths the stream may announce now.
func (p *Prefetcher) Quota(n session.Name) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.book.Quota(time.Now(), n)
}

// Preload announces paths and returns at once.
func (p *Prefetcher) Preload(n session.Name, paths []string) (out session.Outcome, quota int, err error) {
	return p.preload(n, paths, false)
}

func (p *Prefetcher) preload(n session.Name, paths []string, patient bool) (out session.Outcome, quota int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if out, err = p.mu.book.Preload(now, n, paths, patient); err != nil {
		return out, 0, err
	}
	quota, err = p.mu.book.Quota(now, n)
	if out.Accepted > out.Held {
		p.afterLocked() // else nothing changed, and whoever waits must not be woken
	}
	return out, quota, err
}

// PreloadPatiently announces paths as the quota allows, and waits until all were
// accepted, or ctx ends, which is no error: the outcome says how far it came.
func (p *Prefetcher) PreloadPatiently(ctx context.Context, n session.Name, paths []string) (all session.Outcome, quota int, err error) {
	for {
		p.mu.Lock()
		changed := p.changedLocked()
		p.mu.Unlock()
		var out session.Outcome
		out, quota, err = p.preload(n, paths[all.Accepted:], true)
		all.Accepted += out.Accepted
		all.Held += out.Held
		if err != nil || all.Accepted == len(paths) {
			return all, quota, err
		}
		if out.Accepted > 0 {
			continue // its own change must not wake it for nothing
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return all, quota, nil
		}
	}
}

// Active says that paths are being read now. It returns how many of them had not
// been announced and are, and for how many of those there was no room.
func (p *Prefetcher) Active(n session.Name, paths []string) (implicit, noRoom int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	implicit, noRoom, err = p.mu.book.Active(time.Now(), n, paths)
	p.afterLocked()
	return implicit, noRoom, err
}

// Release lets go of paths.
func (p *Prefetcher) Release(n session.Name, paths []string) (released, unknown int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	released, unknown, err = p.mu.book.Release(time.Now(), n, paths)
	p.afterLocked()
	return released, unknown, err
}

// Status tells who asks what has become of paths.
func (p *Prefetcher) Status(ctx context.Context, who session.Who, n session.Name, paths []string) ([]session.File, error) {
	p.mu.Lock()
	files, err := p.mu.book.Status(time.Now(), n, paths)
	p.mu.Unlock()
	return p.refuse(ctx, who, files), err
}

// Untold is the state of a path of which it cannot be told at present whether who asks may
// read what is there.
const Untold = "untold"

// refuse takes out of an answer what who may not read now: the session may have been
// opened by another process, or before the rights were changed. Where that cannot be told,
// because the store is away, whoever announced a path is told its state, and how much it is
// nobody: what is in the cache can be read on.
func (p *Prefetcher) refuse(ctx context.Context, who session.Who, files []session.File) []session.File {
	ctx, cancel := rights.Asking(ctx)
	defer cancel()
	for i := range files {
		f := &files[i]
		if f.State == "unknown" || f.State == "requested" && f.Files == 0 {
			continue // there is nothing to tell
		}
		switch err := p.cfg.Rights.Refused(ctx, who, f.Path); {
		case err == nil:
		case rights.Denied(err):
			*f = session.File{Path: f.Path, State: session.Failed.String(), Err: err}
		case f.Who == who:
			f.Files, f.Bytes = 0, 0
		default:
			*f = session.File{Path: f.Path, State: Untold}
		}
	}
	return files
}

// Wait is Status when each of the paths is ready, streamed, failed or not held at
// all; done is false if ctx ended before.
func (p *Prefetcher) Wait(ctx context.Context, who session.Who, n session.Name, paths []string) (files []session.File, done bool, err error) {
	files, done, err = p.await(ctx, n, paths)
	return p.refuse(ctx, who, files), done, err
}

// await is Wait before rights are asked.
func (p *Prefetcher) await(ctx context.Context, n session.Name, paths []string) (files []session.File, done bool, err error) {
	for {
		p.mu.Lock()
		changed := p.changedLocked()
		files, err = p.mu.book.Status(time.Now(), n, paths)
		p.mu.Unlock()
		if err != nil || settled(files) {
			return files, err == nil, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return files, false, nil
		}
	}
}

func settled(files []session.File) bool {
	for _, f := range files {
		if f.State == "requested" || f.State == "fetching" || f.State == "active" && !f.Ready {
			return false
		}
	}
	return true
}

// Session tells who asks the summary of one session.
func (p *Prefetcher) Session(id session.ID, who session.Who) (session.Summary, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.book.Summary(time.Now(), id, who)
}

// runResolve looks up what was announced.
func (p *Prefetcher) runResolve(ctx context.Context) {
	var workers sync.WaitGroup
	defer workers.Wait()
	slots := make(chan struct{}, resolvers)
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		p.mu.Lock()
		e := p.mu.book.NextResolve()
		p.mu.Unlock()
		if e == nil {
			<-slots
			select {
			case <-p.resolve:
			case <-ctx.Done():
				return
			}
			continue
		}
		workers.Go(func() {
			p.resolveEntry(ctx, e)
			<-slots
		})
	}
}

func (p *Prefetcher) resolveEntry(ctx context.Context, e *session.Entry) {
	path := e.Path()
	found, err := p.objectsOf(ctx, e.Who(), e.Payer(), path)
	p.mu.Lock()
	p.mu.book.Resolved(e, found.objects, found.extra, err)
	budget, _ := p.mu.book.Budget()
	bytes, tell := e.Bytes, e.State() == session.Streamed && !p.mu.toldStreamed
	p.mu.toldStreamed = p.mu.toldStreamed || tell
	p.settleLocked()
	p.sched.Wake()
	p.mu.Unlock()
	if tell {
		// Hints wait for the lock in an ioctl, and must not for the log.
		p.log.Warn("what was announced is larger than all that may be held; it is streamed when it is read, as are others like it",
			"path", path, "bytes", bytes, "budget_bytes", budget, "remedy", "a larger cache-size, or folders of fewer files")
	}
}

// nextAnnounced is the source of what sessions announced.
func (p *Prefetcher) nextAnnounced() (scheduler.Job, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		for len(p.mu.running) > 0 {
			f := p.mu.running[0]
			if f.gone || f.err != nil || f.next == len(f.entry.Objects) {
				p.mu.running[0] = nil
				p.mu.running = p.mu.running[1:]
				f.left -= len(f.entry.Objects) - f.next
				f.next = len(f.entry.Objects)
				p.endLocked(f)
				continue
			}
			obj := f.entry.Objects[f.next]
			f.next++
			return scheduler.Job{Object: obj, Run: func(ctx context.Context) {
				within, done := f.life.Within(ctx)
				defer done()
				p.fetched(f, p.cache.Fetch(within, obj))
			}}, true
		}
		e := p.mu.book.NextFetch()
		if e == nil {
			return scheduler.Job{}, false
		}
		p.admitLocked(e)
	}
}

// admitLocked begins the fetch of an entry: what it needs is held from now on, so
// that what is there already stays.
func (p *Prefetcher) admitLocked(e *session.Entry) {
	f := &fetch{entry: e, left: len(e.Objects)}
	for _, o := range e.Objects {
		p.cache.Hold(o)
		p.mu.readers[o] = e
	}
	p.mu.fetches[e] = f
	p.mu.running = append(p.mu.running, f)
}

// fetched notes that one object of f has come, or will not.
func (p *Prefetcher) fetched(f *fetch, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f.left--
	if err != nil && f.err == nil {
		f.err = err
	}
	p.endLocked(f)
	p.settleLocked()
}

// endLocked tells the book what became of f, when the last of its objects has
// ended.
func (p *Prefetcher) endLocked(f *fetch) {
	if f.left > 0 || p.mu.fetches[f.entry] != f {
		return
	}
	if f.gone {
		p.forgetLocked(f)
		p.mu.leaving = append(p.mu.leaving, f)
		p.wakeLetGo()
		return
	}
	if f.ended {
		return
	}
	f.ended = true
	unheld := errors.Is(f.err, cache.ErrUnavailable) || errors.Is(f.err, cache.ErrNoSpace) || errors.Is(f.err, cache.ErrNever)
	if f.err != nil {
		p.unholdLocked(f)
		p.log.Info("an announced file was not fetched", "path", f.entry.Path(), "error", f.err)
	}
	p.mu.book.Fetched(f.entry, unheld, f.err)
}

// dropLocked lets go of an entry that nobody holds.
func (p *Prefetcher) dropLocked(e *session.Entry) {
	f := p.mu.fetches[e]
	if f == nil {
		p.mu.book.Freed(e)
		return
	}
	f.gone = true
	f.life.End()
	p.endLocked(f)
}

// forgetLocked takes f out of the books of what is held.
func (p *Prefetcher) forgetLocked(f *fetch) {
	delete(p.mu.fetches, f.entry)
	for _, o := range f.entry.Objects {
		if p.mu.readers[o] == f.entry {
			delete(p.mu.readers, o)
		}
	}
}

// unholdLocked ends the holds of what was not, or is no longer, brought whole.
func (p *Prefetcher) unholdLocked(f *fetch) {
	p.forgetLocked(f)
	for _, o := range f.entry.Objects {
		p.cache.Unhold(o, false)
	}
}

func (p *Prefetcher) wakeLetGo() {
	select {
	case p.goAway <- struct{}{}:
	default:
	}
}

// runLetGo lets go in the cache of what nobody holds any more, until ctx ends and
// then of what is left. It is not done by who releases: the cache may take its
// time, and a hint must not.
func (p *Prefetcher) runLetGo(ctx context.Context) {
	for done := false; !done; {
		select {
		case <-p.goAway:
		case <-ctx.Done():
			done = true
		}
		p.mu.Lock()
		leaving := p.mu.leaving
		p.mu.leaving = nil
		p.mu.Unlock()
		if len(leaving) == 0 {
			continue
		}
		for _, f := range leaving {
			p.letGo(f)
		}
		p.mu.Lock()
		for _, f := range leaving {
			p.mu.book.Freed(f.entry)
		}
		p.settleLocked()
		p.mu.Unlock()
		p.sched.Wake()
	}
}

func (p *Prefetcher) letGo(f *fetch) {
	for _, o := range f.entry.Objects {
		p.cache.Unhold(o, true)
		if f.entry.Drop {
			if _, err := p.cache.Evict(o); errors.Is(err, cache.ErrInUse) {
				p.mu.Lock()
				p.mu.drop = append(p.mu.drop, o)
				p.mu.Unlock()
			}
		}
	}
}

// recheck finds what the cache had to give up of what is said to be ready.
func (p *Prefetcher) recheck() {
	p.mu.Lock()
	var ready []*session.Entry
	for e := range p.mu.fetches {
		if e.State() == session.Ready {
			ready = append(ready, e)
		}
	}
	p.mu.Unlock()
	for _, e := range ready {
		for _, o := range e.Objects {
			if o.Size == 0 || p.cache.Residency(o).Whole {
				continue
			}
			p.mu.Lock()
			if f := p.mu.fetches[e]; f != nil && e.State() == session.Ready {
				p.unholdLocked(f)
				p.mu.book.Lost(e)
				p.settleLocked()
			}
			p.mu.Unlock()
			break
		}
	}
}
