package announced

import (
	"context"
	"time"

	"github.com/pailfs/pailfs/prefetch/rights"
	"github.com/pailfs/pailfs/prefetch/session"
)

// afterLocked follows every call that may have given the book something to do.
func (p *Sessions) afterLocked() {
	p.settleLocked()
	p.resolve.ring()
	p.cfg.Wake()
}

// Released notes that an open description by which sessions were called is closed: those
// whose last it was have lost their client.
func (p *Sessions) Released(handle uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.book.Released(time.Now(), handle)
	p.settleLocked() // who waits for room looks again
}

// Renew is a sign of life. It returns the lease.
func (p *Sessions) Renew(n session.Name) (time.Duration, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.book.Renew(time.Now(), n)
}

// Quota returns how many paths the stream may announce now.
func (p *Sessions) Quota(n session.Name) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.book.Quota(time.Now(), n)
}

// Preload announces paths and returns at once.
func (p *Sessions) Preload(n session.Name, paths []string) (out session.Outcome, quota int, err error) {
	return p.preload(n, paths, false)
}

func (p *Sessions) preload(n session.Name, paths []string, patient bool) (out session.Outcome, quota int, err error) {
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
func (p *Sessions) PreloadPatiently(ctx context.Context, n session.Name, paths []string) (all session.Outcome, quota int, err error) {
	for {
		p.mu.Lock()
		changed := p.mu.news.Next()
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
func (p *Sessions) Active(n session.Name, paths []string) (implicit, noRoom int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	implicit, noRoom, err = p.mu.book.Active(time.Now(), n, paths)
	p.afterLocked()
	return implicit, noRoom, err
}

// Release lets go of paths.
func (p *Sessions) Release(n session.Name, paths []string) (released, unknown int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	released, unknown, err = p.mu.book.Release(time.Now(), n, paths)
	p.afterLocked()
	return released, unknown, err
}

// Status tells who asks what has become of paths.
func (p *Sessions) Status(ctx context.Context, who session.Who, n session.Name, paths []string) ([]session.File, error) {
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
func (p *Sessions) refuse(ctx context.Context, who session.Who, files []session.File) []session.File {
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
func (p *Sessions) Wait(ctx context.Context, who session.Who, n session.Name, paths []string) (files []session.File, done bool, err error) {
	files, done, err = p.await(ctx, n, paths)
	return p.refuse(ctx, who, files), done, err
}

// await is Wait before rights are asked.
func (p *Sessions) await(ctx context.Context, n session.Name, paths []string) (files []session.File, done bool, err error) {
	for {
		p.mu.Lock()
		changed := p.mu.news.Next()
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
func (p *Sessions) Session(id session.ID, who session.Who) (session.Summary, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.book.Summary(time.Now(), id, who)
}
