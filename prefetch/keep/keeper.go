package keep

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"log/slog"
	"sync"
	"time"

	"github.com/pailfs/pailfs/prefetch/announced"
	"github.com/pailfs/pailfs/prefetch/rights"
	"github.com/pailfs/pailfs/prefetch/session"
)

const (
	// SaveEvery is how often what changed is saved on this node.
	SaveEvery = time.Second
	// ShareEvery is how often that is saved on the mount, where it costs requests.
	ShareEvery = 10 * time.Second
	// expireEvery is how often it is looked for what nobody has come back for.
	expireEvery = time.Minute
	// InUse is how long after it was saved another node's state is taken for that of
	// somebody who is at work.
	InUse = 3 * ShareEvery
	// saveTimeout bounds one save, or all of them at the end, loadTimeout one load, for
	// which a client waits.
	saveTimeout = 10 * time.Second
	loadTimeout = 5 * time.Second
	// sharers is how many are saved on the mount at once.
	sharers = 16
	// loaders is how many files of sessions are read at once: each is in memory as a whole.
	loaders = 2
)

// keeping is what is known of where the state of a session is kept.
type keeping struct {
	where Persistence
	// shared says that it is kept on the mount too, onMount that it has been saved
	// there, and changed that it has changed since.
	shared, onMount, changed bool
	// remember says that this node does not know yet that it is on the mount.
	remember bool
	// filed says that this node may have a file of it.
	filed bool
	// left says that its client has gone and left it to a successor.
	left bool
	// who opened the session last: it is kept on the mount with those rights.
	who session.Who
	// saved is when it was saved last.
	saved time.Time
	// failing says that it could not be saved the last time.
	failing bool
}

// Config is the configuration of a [Keeper].
type Config struct {
	// Store keeps the sessions on this node over the daemon's death; nil means that
	// nothing does.
	Store Store
	// Shared keeps them for other nodes as well, nil if nothing does. It needs Store.
	Shared Store
	// Host names this node in what is shared.
	Host string
	// Rights says whose session may be kept where on the mount.
	Rights rights.Rights
	// NewID names sessions.
	NewID func() string
	Log   *slog.Logger
}

// Keeper opens and closes sessions, and keeps what they hold over the daemon's death. It is safe
// for concurrent use.
type Keeper struct {
	cfg      Config
	sessions *announced.Sessions
	// loading has a place for each file of a session that is being read.
	loading chan struct{}

	mu struct {
		sync.Mutex
		// keeping tells where the sessions are kept. It is told together with what the sessions
		// are told, so the lock is held meanwhile.
		keeping map[session.Key]*keeping
	}
}

// New returns a Keeper of sessions.
func New(cfg Config, sessions *announced.Sessions) *Keeper {
	p := &Keeper{cfg: cfg, sessions: sessions, loading: make(chan struct{}, loaders)}
	p.mu.keeping = make(map[session.Key]*keeping)
	return p
}

// Opened is what [Keeper.Open] returns.
type Opened struct {
	announced.Opened
	// Persistence says where the session's state is kept.
	Persistence Persistence
}

// Open opens, joins or adopts the session of key. One that the daemon does not
// know is looked for where the state is kept.
func (p *Keeper) Open(ctx context.Context, key session.Key, params session.Params) (Opened, error) {
	// Who has too many is refused before anything is looked for.
	if err := p.sessions.MayOpen(key); err != nil {
		return Opened{}, err
	}
	file, keeping := p.find(ctx, key, params)
	var saved *announced.Saved
	if file != nil {
		saved = &announced.Saved{Params: file.params(), Held: file.Held}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	got, err := p.sessions.Open(session.ID(p.cfg.NewID()), key, params, saved)
	if err != nil {
		return Opened{}, err
	}
	keeping.left, keeping.who = false, params.Who
	p.mu.keeping[key] = keeping
	return Opened{Opened: got, Persistence: keeping.where}, nil
}

// Close ends a session; keep leaves what it holds under its lease.
func (p *Keeper) Close(id session.ID, uid uint32, keep bool) (released int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key, released, err := p.sessions.Close(id, uid, keep)
	if k := p.mu.keeping[key]; k != nil && err == nil {
		k.left, k.changed = keep, true
		if !keep && !k.filed && !k.shared {
			delete(p.mu.keeping, key)
			p.sessions.Forget(key)
		}
	}
	return released, err
}

// find returns what was saved of a session that the daemon does not know, or nil,
// and where its state is kept from now on.
func (p *Keeper) find(ctx context.Context, key session.Key, params session.Params) (*savedSession, *keeping) {
	p.mu.Lock()
	known := p.mu.keeping[key]
	if _, ok := p.sessions.Params(key); !ok {
		known = nil
	}
	p.mu.Unlock()
	if known != nil {
		return nil, known
	}
	k := &keeping{where: Persistence{Kind: "none", Reason: "the mount has no place for it"}}
	if p.cfg.Store == nil {
		return nil, k
	}
	k.where = p.cfg.Store.Where(key)
	now := time.Now()
	own, err := p.load(ctx, p.cfg.Store, key, now)
	k.filed = own != nil || err != nil
	if err != nil {
		p.cfg.Log.Warn("cannot read what a session held; it begins anew", "task", key.Task, "worker", key.Worker, "error", err)
	}
	there, why := p.findShared(ctx, key, params, now)
	if why.Reason != "" {
		k.where.Reason, k.where.Detail = why.Reason, why.Detail
		return own, k
	}
	k.where, k.shared, k.onMount = p.cfg.Shared.Where(key), true, there != nil
	switch {
	case own == nil:
		return there, k
	case there == nil && own.header.Shared:
		// It was there, and whoever had it on another node has closed it.
		return nil, k
	case there != nil && there.header.Saved.After(own.header.Saved):
		return there, k
	default:
		return own, k
	}
}

// findShared returns what the mount has of a session, or why the mount is not the
// place for it.
func (p *Keeper) findShared(ctx context.Context, key session.Key, params session.Params, now time.Time) (there *savedSession, why Persistence) {
	switch {
	case p.cfg.Shared == nil:
		return nil, Persistence{Reason: "the mount cannot be written: another node will not know what this one held"}
	case !params.Shared:
		return nil, Persistence{Reason: "no directory of the mount was named for it"}
	}
	where := p.cfg.Shared.Where(key)
	if where.Kind != KindMount {
		return nil, where
	}
	switch err := p.mayKeep(ctx, params.Who, where.Path); {
	case errors.Is(err, errMayNot):
		return nil, Persistence{Reason: err.Error()}
	case err != nil:
		return nil, Persistence{Reason: fmt.Sprintf("it cannot be told whether user %d may keep a session there", params.Who.UID), Detail: err}
	}
	there, err := p.load(ctx, p.cfg.Shared, key, now)
	if err != nil {
		// It may be somebody's file, and is not replaced.
		return nil, Persistence{Reason: "what the mount has of it cannot be read", Detail: err}
	}
	if there == nil {
		return nil, Persistence{}
	}
	h := &there.header
	if h.Host != p.cfg.Host && !h.Left && now.Sub(h.Saved) < InUse {
		return nil, Persistence{Reason: fmt.Sprintf("host %q uses a session of this name: give every node a persistence path of its own, or set GROUP_RANK", h.Host)}
	}
	return there, Persistence{}
}

// errMayNot means that a session may not be kept where its client has named a directory.
var errMayNot = errors.New("a session is not kept where its user may not make, replace and remove its file")

// mayKeep returns errMayNot unless who may do with the file of a session what is done with
// it. Nothing is told of what is there.
func (p *Keeper) mayKeep(ctx context.Context, who session.Who, path string) error {
	switch err := p.cfg.Rights.Keep(ctx, who, path); {
	case err == nil:
		return nil
	case errors.Is(err, iofs.ErrPermission):
		return fmt.Errorf("user %d: %w", who.UID, errMayNot)
	default:
		return err
	}
}

// load returns what a store has of a session, nil if it has nothing, or nothing
// that is younger than the lease. What is no session, or another one's, is an error.
func (p *Keeper) load(ctx context.Context, store Store, key session.Key, now time.Time) (*savedSession, error) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	select {
	case p.loading <- struct{}{}:
		defer func() { <-p.loading }()
	case <-ctx.Done():
		return nil, fmt.Errorf("others are being read: %w", ctx.Err())
	}
	data, err := store.Load(ctx, key)
	if err != nil {
		if errors.Is(err, iofs.ErrNotExist) {
			err = nil
		}
		return nil, err
	}
	s, err := decodeSession(data)
	switch {
	case err != nil:
		return nil, err
	case s.header.Key.Task != key.Task || s.header.Key.Worker != key.Worker:
		return nil, fmt.Errorf("it is of worker %d of task %q", s.header.Key.Worker, s.header.Key.Task)
	case now.Sub(s.header.Saved) > s.params().Lease:
		return nil, nil
	}
	return s, nil
}

// Run saves what changed, on this node and on the mount, until ctx ends, and then
// everything once more.
func (p *Keeper) Run(ctx context.Context) {
	shared := make(chan struct{})
	go func() {
		defer close(shared)
		p.runShare(ctx)
	}()
	tick := time.NewTicker(SaveEvery)
	defer tick.Stop()
	old := time.NewTicker(expireEvery)
	defer old.Stop()
	for {
		select {
		case now := <-tick.C:
			p.saveChanged(ctx, now)
		case now := <-old.C:
			if store, ok := p.cfg.Store.(Expirer); ok {
				store.Expire(now)
			}
		case <-ctx.Done():
			<-shared // this node is to remember what came onto the mount
			p.saveChanged(context.WithoutCancel(ctx), time.Now())
			return
		}
	}
}

// runShare is Run for the mount alone, which may be slow.
func (p *Keeper) runShare(ctx context.Context) {
	tick := time.NewTicker(ShareEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			p.share(ctx, false)
		case <-ctx.Done():
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
			defer cancel()
			p.share(ctx, true)
			return
		}
	}
}

// saveChanged saves the sessions that changed, or were saved so long ago that they
// would be taken for dead. One that was closed is forgotten.
func (p *Keeper) saveChanged(ctx context.Context, now time.Time) {
	if p.cfg.Store == nil {
		p.mu.Lock()
		p.sessions.TakeDirty()
		p.mu.Unlock()
		p.forgetClosed()
		return
	}
	p.mu.Lock()
	keys := p.sessions.TakeDirty()
	for _, key := range keys {
		if k := p.mu.keeping[key]; k != nil {
			k.filed = true
		}
	}
	changed := make(map[session.Key]bool, len(keys))
	for _, key := range keys {
		changed[key] = true
	}
	for key, k := range p.mu.keeping {
		if params, ok := p.sessions.Params(key); ok && !changed[key] && (k.remember || now.Sub(k.saved) > params.Lease/4) {
			keys = append(keys, key)
		}
	}
	p.mu.Unlock()
	for _, key := range keys {
		p.told(key, p.saveOne(ctx, p.cfg.Store, key, false))
		p.mu.Lock()
		if k := p.mu.keeping[key]; k != nil {
			k.changed = k.changed || !k.remember || changed[key]
			k.saved, k.remember = now, false
		}
		p.mu.Unlock()
	}
	p.forgetClosed()
}

// share saves on the mount what changed since it was saved there. At the end all
// is left to whoever comes next.
func (p *Keeper) share(ctx context.Context, end bool) {
	if p.cfg.Shared == nil {
		return
	}
	p.mu.Lock()
	var keys []session.Key
	for key, k := range p.mu.keeping {
		if k.shared && (k.changed || end) {
			k.changed = false
			k.left = k.left || end
			keys = append(keys, key)
		}
	}
	p.mu.Unlock()
	var saves sync.WaitGroup
	slots := make(chan struct{}, sharers)
	for _, key := range keys {
		slots <- struct{}{}
		saves.Go(func() {
			p.shareOne(ctx, key)
			<-slots
		})
	}
	saves.Wait()
	p.forgetClosed()
}

func (p *Keeper) shareOne(ctx context.Context, key session.Key) {
	err := p.saveOne(ctx, p.cfg.Shared, key, true)
	p.told(key, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.mu.keeping[key]
	if k == nil {
		return
	}
	switch {
	case err == nil && !k.onMount:
		k.onMount, k.remember = true, true
	case err == nil:
	case errors.Is(err, ErrTaken), errors.Is(err, errMayNot):
		k.shared, k.where = false, p.cfg.Store.Where(key)
		k.where.Reason, k.where.Detail = "it is kept there no longer", err
	default:
		k.changed = true // again the next time
	}
}

// forgetClosed drops what is known of where sessions were kept that have ended and
// are nowhere any more.
func (p *Keeper) forgetClosed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, k := range p.mu.keeping {
		if _, ok := p.sessions.Params(key); !ok && !p.sessions.Dirty(key) && (!k.shared || !k.changed) {
			delete(p.mu.keeping, key)
		}
	}
}

// told logs that a session could not be saved, once until it can be again.
func (p *Keeper) told(key session.Key, err error) {
	p.mu.Lock()
	k := p.mu.keeping[key]
	before := k != nil && k.failing
	if k != nil {
		k.failing = err != nil
	}
	p.mu.Unlock()
	if err != nil && !before {
		p.cfg.Log.Warn("cannot save what a session holds", "task", key.Task, "worker", key.Worker, "error", err)
	}
}

// saveOne saves a session in a store, or removes there what has ended.
func (p *Keeper) saveOne(ctx context.Context, store Store, key session.Key, onMount bool) error {
	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	h := savedHeader{Key: key, Host: p.cfg.Host}
	var who session.Who
	p.mu.Lock()
	held, params, ok := p.sessions.Export(key)
	if k := p.mu.keeping[key]; k != nil {
		h.Left, h.Shared, who = k.left && onMount, k.onMount, k.who
	}
	p.mu.Unlock()
	if onMount {
		// Rights count when they are used, not when the session was opened.
		if err := p.mayKeep(ctx, who, store.Where(key).Path); err != nil {
			return err
		}
	}
	if !ok || len(held) == 0 && !onMount {
		// A session that holds nothing is as good as a new one, but for other nodes, which
		// are to know that it is in use.
		return store.Remove(ctx, key)
	}
	session.SortHeld(held)
	data, err := encodeSession(h, params, held, time.Now())
	if err != nil {
		return err
	}
	return store.Save(ctx, key, data)
}
