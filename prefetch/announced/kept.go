package announced

import (
	"time"

	"github.com/pailfs/pailfs/prefetch/budget"
	"github.com/pailfs/pailfs/prefetch/session"
)

// What keeps sessions over the daemon's death opens and closes them by these methods.

// Opened is what [Sessions.Open] returns.
type Opened struct {
	Session session.ID
	Adopted int
	Quota   int
	Budget  int64
	Lease   time.Duration
}

// Saved is what was kept of a session.
type Saved struct {
	Params session.Params
	Held   []session.Held
}

// MayOpen refuses who has too many sessions.
func (p *Sessions) MayOpen(key session.Key) error {
	p.mu.Lock()
	_, known := p.mu.book.Params(key)
	known = known || p.mu.book.Yields(key.User())
	p.mu.Unlock()
	if known {
		return nil
	}
	return p.cfg.Ledger.Check(key.User(), budget.Sessions, 1)
}

// Open opens, joins or adopts the session of key, which gets the name id if it is new. What
// was saved of one that is not known, if anything was, is held again.
func (p *Sessions) Open(id session.ID, key session.Key, params session.Params, saved *Saved) (Opened, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	b := p.mu.book
	if saved != nil {
		restored := saved.Params
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
	opened, _ := b.Params(key)
	p.afterLocked()
	return Opened{Session: got, Adopted: adopted, Quota: quota, Budget: budget, Lease: opened.Lease}, nil
}

// Close ends a session, whose key it returns; keep leaves what it holds under its lease.
func (p *Sessions) Close(id session.ID, uid uint32, keep bool) (key session.Key, released int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if key, err = p.mu.book.Find(now, id, uid); err != nil {
		return key, 0, err
	}
	released, err = p.mu.book.Close(now, id, uid, keep)
	p.afterLocked()
	return key, released, err
}

// Params returns the parameters of a session; false if there is no such session.
func (p *Sessions) Params(key session.Key) (session.Params, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.book.Params(key)
}

// TakeDirty returns the sessions of which something changed since it was called last.
func (p *Sessions) TakeDirty() []session.Key {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.book.TakeDirty()
}

// Dirty reports whether TakeDirty would return the session.
func (p *Sessions) Dirty(key session.Key) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.book.Dirty(key)
}

// Export returns what a session holds, in no order, and its parameters; false if there is no
// such session.
func (p *Sessions) Export(key session.Key) ([]session.Held, session.Params, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.book.Export(key)
}

// Forget says that nothing of a session that has ended was kept anywhere.
func (p *Sessions) Forget(key session.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.book.Forget(key)
}
