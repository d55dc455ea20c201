package session

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/prefetch/budget"
)

// Defaults and limits of [Params] and [Config].
const (
	// DefaultLease is how long holders outlive the last sign of their owner.
	DefaultLease = 30 * time.Minute
	// DefaultAdoption is how long a restored session waits for its worker.
	DefaultAdoption = 10 * time.Minute
	// MaxBuffer is the largest buffer, in files.
	MaxBuffer = 1_000_000
	// overflow is how many buffers a caller that ignores its quota may fill.
	overflow = 4
)

// ErrNoSession means that a session does not exist: it was never opened, was
// closed, expired, or belongs to another user.
var ErrNoSession = errors.New("no such session")

// Config is the configuration of a [Book].
type Config struct {
	// Budget is how many bytes may be charged at once.
	Budget int64
	// Adoption is how long a restored session waits for its worker; 0 means
	// DefaultAdoption.
	Adoption time.Duration
	// Ledger says how much may be remembered for whom; nil means the default.
	Ledger *budget.Ledger
	// Cost says what an object is charged, always the same; nil means its size.
	Cost func(oss.Object) int64
}

// ID names a session.
type ID string

// Key says whose a session is. There is one session for each.
type Key struct {
	// UID is the user that opened it.
	UID uint32 `json:"uid"`
	// Task is the path of the task's persistence directory in the mount, or
	// whatever else tells tasks apart.
	Task string `json:"task"`
	// Worker is the worker's rank on this node.
	Worker int `json:"worker"`
	// Guest says that the user has the id of root or of the daemon's own user, and is not
	// trusted as they are, see [budget.User].
	Guest bool `json:"guest,omitempty"`
}

// User returns who is charged for the session.
func (k Key) User() budget.User { return budget.User{UID: k.UID, Guest: k.Guest} }

// Params are what a client says when it opens a session.
type Params struct {
	// Instance tells one process tree from the next that has the same Key.
	Instance string
	// Buffer is how many files of a stream may be outstanding: announced and not
	// yet in use.
	Buffer int
	// Lease is how long holders outlive the last call; 0 means DefaultLease.
	Lease time.Duration
	// DropOnRelease removes what is released from the cache at once.
	DropOnRelease bool
	// Shared says that the task is a directory of the mount, in which the session may
	// be kept for other nodes.
	Shared bool
	// Handle is the open description by which it is opened, 0 if that is not known.
	Handle uint64
	// Who opened the session: what it announces is found and fetched with those rights.
	Who Who
}

// Book holds the sessions of one mount.
type Book struct {
	cfg      Config
	sessions map[ID]*session
	byKey    map[Key]*session
	entries  map[name]*Entry
	folders  folderSet
	shares   *shares
	gone     []*Entry
	// order are the streams, which take turns, and turn is whose it is.
	order   []*stream
	turn    int
	dirty   map[Key]bool
	totals  Totals
	orphans orphans
}

// Totals count what happened since the book was made.
type Totals struct {
	Preloaded int64 `json:"preloaded"`
	Duplicate int64 `json:"duplicate"`
	Over      int64 `json:"over_quota"`
	Dropped   int64 `json:"dropped"`
	Implicit  int64 `json:"implicit"`
	Released  int64 `json:"released"`
	// Unknown counts releases of what the caller did not hold.
	Unknown int64 `json:"unknown_releases"`
	Leaked  int64 `json:"leaked"`
	Adopted int64 `json:"adopted"`
}

// NewBook returns an empty book.
func NewBook(cfg Config) *Book {
	if cfg.Adoption <= 0 {
		cfg.Adoption = DefaultAdoption
	}
	if cfg.Ledger == nil {
		cfg.Ledger = budget.Default()
	}
	if cfg.Cost == nil {
		cfg.Cost = func(o oss.Object) int64 { return o.Size }
	}
	return &Book{
		cfg:      cfg,
		sessions: make(map[ID]*session),
		byKey:    make(map[Key]*session),
		entries:  make(map[name]*Entry),
		folders:  make(folderSet),
		shares:   newShares(cfg),
		dirty:    make(map[Key]bool),
		orphans:  orphans{make(map[*session]bool), make(map[budget.User]int64)},
	}
}

// SetBudget changes the budget. What is charged already stays.
func (b *Book) SetBudget(bytes int64) { b.shares.budget, b.shares.stale = bytes, true }

// Budget returns the budget and how much of it is charged, in bytes.
func (b *Book) Budget() (budget, charged int64) { return b.shares.budget, b.shares.charged }

// Totals returns what happened since the book was made.
func (b *Book) Totals() Totals { return b.totals }

// Open opens the session of key, or adopts it if there is one: its holders stay,
// and what another instance was reading counts as ready. id is used if the session
// is new. It fails with a [budget.Exceeded] if the user has too many.
func (b *Book) Open(now time.Time, id ID, key Key, p Params) (got ID, adopted int, err error) {
	if p.Lease <= 0 {
		p.Lease = DefaultLease
	}
	p.Buffer = min(max(p.Buffer, 1), MaxBuffer)
	s := b.byKey[key]
	if s == nil {
		if s, err = b.add(id, key); err != nil {
			return "", 0, err
		}
	} else if s.restored || p.Instance == "" || p.Instance != s.params.Instance {
		for _, st := range s.streams {
			for _, h := range st.holders {
				adopted++
				h.active = false
				st.settle(h)
			}
			st.passed = 0
		}
		b.totals.Adopted += int64(adopted)
	}
	s.params = p
	s.known(p.Who)
	b.reached(s, p.Handle)
	s.restored = false
	s.lastCall = now
	b.dirty[key] = true
	return s.id, adopted, nil
}

// add makes a session, and charges it. [Book.end] gives that back.
func (b *Book) add(id ID, key Key) (*session, error) {
	for {
		err := b.cfg.Ledger.Take(key.User(), budget.Sessions, 1)
		if err == nil {
			break
		}
		if !b.yield(key.User()) {
			return nil, err
		}
	}
	s := &session{id: id, key: key, streams: make(map[int]*stream), folders: make(map[*folder]int), handles: make(map[uint64]bool)}
	s.tenant = b.shares.tenant(key.User())
	s.tenant.sessions++
	b.shares.stale = true
	b.sessions[id] = s
	b.byKey[key] = s
	return s, nil
}

// Find returns the session's key, or ErrNoSession. It counts as a sign of life.
func (b *Book) Find(now time.Time, id ID, uid uint32) (Key, error) {
	s, err := b.session(now, id, uid)
	if err != nil {
		return Key{}, err
	}
	return s.key, nil
}

// session returns the session if the user may use it, and notes the call.
func (b *Book) session(now time.Time, id ID, uid uint32) (*session, error) {
	s := b.sessions[id]
	if s == nil || s.key.UID != uid && uid != 0 {
		return nil, ErrNoSession
	}
	s.lastCall = now
	return s, nil
}

// Close ends a session. What it holds is released, unless keep leaves it under
// the lease for whoever opens the session next.
func (b *Book) Close(now time.Time, id ID, uid uint32, keep bool) (released int, err error) {
	s, err := b.session(now, id, uid)
	if err != nil {
		return 0, err
	}
	if keep {
		b.orphans.drop(s)
		s.kept = true
		return 0, nil
	}
	released = b.end(s)
	b.totals.Released += int64(released)
	return released, nil
}

// end removes a session with all that it holds.
func (b *Book) end(s *session) (released int) {
	b.orphans.drop(s)
	for _, st := range s.sorted() {
		for _, h := range st.sorted() {
			b.remove(h)
			released++
		}
	}
	b.order = slices.DeleteFunc(b.order, func(o *stream) bool { return o.session == s })
	delete(b.sessions, s.id)
	delete(b.byKey, s.key)
	b.dirty[s.key] = true
	b.cfg.Ledger.Give(s.key.User(), budget.Names, s.streamsCost(len(s.streams)))
	b.cfg.Ledger.Give(s.key.User(), budget.Sessions, 1)
	s.tenant.sessions--
	b.shares.leaves(s.tenant)
	return released
}

// Outcome is what became of the paths of one Preload.
type Outcome struct {
	// Accepted is how many paths, from the first on, were taken.
	Accepted int
	// Held counts those of them that the holder held already, Over those that were
	// beyond the quota.
	Held, Over int
	// Dropped counts the paths that were not taken, NoRoom those of them that found no room
	// in the user's budget of names.
	Dropped, NoRoom int
}

// Name says which holder a call is about: a stream of a session, and perhaps one
// of several uses of a path in it.
type Name struct {
	Session ID
	UID     uint32
	Index   int
	// Seq tells uses of one path apart, where a sampler draws with replacement.
	Seq int
	// Handle is the open description by which the call came, 0 if that is not known.
	Handle uint64
}

// Preload announces paths in the order of their use. With patient it takes no
// more than the quota allows; else up to four buffers, and drops what is beyond. It takes
// as many as the user's budget of names has room for. It fails with [ErrNeverFits] at a
// first path for which there will never be room.
func (b *Book) Preload(now time.Time, n Name, paths []string, patient bool) (Outcome, error) {
	s, err := b.of(now, n)
	if err != nil {
		return Outcome{}, err
	}
	st, err := b.stream(s, n.Index)
	if err != nil {
		// There is no room for the stream, so there is none for names in it.
		var out Outcome
		if !patient {
			out.Dropped, out.NoRoom = len(paths), len(paths)
			b.totals.Dropped += int64(out.Dropped)
			s.dropped += int64(out.Dropped)
		}
		return out, nil
	}
	var out Outcome
	for i, path := range paths {
		if h := b.folders.find(st, path, n.Seq); h != nil {
			h.named = now
			out.Accepted++
			out.Held++
			continue
		}
		if patient && b.quota(st) <= 0 {
			break
		}
		if !patient && st.outstanding >= overflow*s.params.Buffer {
			out.Dropped = len(paths) - i
			break
		}
		over := st.outstanding >= s.params.Buffer
		if _, err := b.hold(now, st, path, n.Seq, false); err != nil {
			if never := neverFits(b.cfg.Ledger, s, path); never != nil && out.Accepted == 0 {
				return out, never
			}
			// The next may be shorter: the order counts for more.
			st.full = true
			if !patient {
				out.Dropped, out.NoRoom = len(paths)-i, len(paths)-i
			}
			break
		}
		if over {
			out.Over++
		}
		out.Accepted++
	}
	b.totals.Preloaded += int64(out.Accepted - out.Held)
	b.totals.Duplicate += int64(out.Held)
	b.totals.Over += int64(out.Over)
	b.totals.Dropped += int64(out.Dropped)
	s.dropped += int64(out.Dropped)
	return out, nil
}

// Active says that the paths are being read now. Those that were not announced
// are, and come first; noRoom counts those that the user's budget of names has no room for,
// which are read all the same.
func (b *Book) Active(now time.Time, n Name, paths []string) (implicit, noRoom int, err error) {
	s, err := b.of(now, n)
	if err != nil {
		return 0, 0, err
	}
	st, err := b.stream(s, n.Index)
	if err != nil {
		return 0, len(paths), nil
	}
	for _, path := range paths {
		h := b.folders.find(st, path, n.Seq)
		if h == nil {
			if h, err = b.hold(now, st, path, n.Seq, true); err != nil {
				noRoom++
				continue
			}
			implicit++
		} else {
			st.hurry(h)
		}
		h.named, h.active = now, true
		st.passed = max(st.passed, h.order)
		st.settle(h)
	}
	b.totals.Implicit += int64(implicit)
	b.dirty[s.key] = true
	return implicit, noRoom, nil
}

// Release lets go of paths. Those that the caller does not hold are counted and
// nothing else.
func (b *Book) Release(now time.Time, n Name, paths []string) (released, unknown int, err error) {
	s, err := b.of(now, n)
	if err != nil {
		return 0, 0, err
	}
	st := s.streams[n.Index]
	for _, path := range paths {
		h := b.folders.find(st, path, n.Seq)
		if h == nil {
			unknown++
			continue
		}
		st.passed = max(st.passed, h.order)
		s.released.add(h.entry)
		b.remove(h)
		released++
	}
	b.totals.Released += int64(released)
	b.totals.Unknown += int64(unknown)
	return released, unknown, nil
}

// Quota returns how many paths the stream may announce now. It is never negative.
func (b *Book) Quota(now time.Time, n Name) (int, error) {
	s, err := b.of(now, n)
	if err != nil {
		return 0, err
	}
	st := s.streams[n.Index]
	if st == nil {
		st = &stream{session: s, index: n.Index} // to ask makes none
	}
	return b.quota(st), nil
}

// quota is Quota. It is no more than the user's budget of names has room for, going by
// what names of the stream have cost so far, nor than there is room for bytes of the user, or
// than its share of them has. Once it is zero it stays so until a tenth of
// the buffer, or of either budget if that holds fewer files, is free, so that callers do not
// announce file by file; and a stream that has nothing outstanding may announce one if
// there is room for its name.
func (b *Book) quota(st *stream) int {
	buffer := st.session.params.Buffer
	free := buffer - st.outstanding
	if st.size > 0 {
		files := func(bytes int64) int { return int(min(float64(max(bytes, 0))/st.size, float64(buffer))) }
		t := st.session.tenant
		b.shares.setShares()
		free = min(free, files(max(b.shares.left(t), t.share-t.charged)))
		buffer = files(b.shares.most(t))
	}
	names := namesLeft(b.cfg.Ledger, b.orphans, st)
	free, buffer = min(free, names), min(buffer, st.outstanding+names)
	if st.full && free < max(1, buffer/10) {
		free = 0
	}
	st.full = free <= 0
	if free <= 0 && st.outstanding == 0 {
		return min(1, names)
	}
	return max(free, 0)
}

// namesLeft returns for how many names more of a stream, which may not be there yet, the
// user's budget has room.
func namesLeft(ledger *budget.Ledger, o orphans, st *stream) int {
	s := st.session
	left := ledger.LeftAfter(s.key.User(), budget.Names, o.yields[s.key.User()])
	if s.streams[st.index] == nil {
		left -= s.streamsCost(len(s.streams)+1) - s.streamsCost(len(s.streams))
	}
	return int(max(left, 0) / max(st.nameSize, nameCost+usualName))
}

// ErrNeverFits means that a name costs more than its user may ever have.
var ErrNeverFits = errors.New("the name never fits")

// neverFits returns ErrNeverFits, with the figures, if a path can never be announced.
func neverFits(ledger *budget.Ledger, s *session, path string) error {
	in, last := cut(path)
	cost, most := nameCost+folderCost+int64(len(in)+len(last)), ledger.Most(s.key.User(), budget.Names)
	if cost <= most {
		return nil
	}
	return fmt.Errorf("%w: a path of %d bytes costs %d bytes, user %d may have %d in all: announce a folder that it is in",
		ErrNeverFits, len(path), cost, s.key.UID, most)
}

// Read notes that somebody reads e, which renews the leases of its holders.
func (b *Book) Read(now time.Time, e *Entry) { e.lastRead = now }

// Expire takes away what was held longer than its lease allows, and ends sessions
// that have been silent for that long. It returns how many holders went.
func (b *Book) Expire(now time.Time) (leaked int) {
	for _, s := range sorted(b.sessions) {
		limit := s.params.Lease
		if s.restored {
			limit = b.cfg.Adoption
		}
		for _, st := range s.sorted() {
			for _, h := range st.silent(now, limit) {
				s.leaked.add(h.entry)
				b.remove(h)
				leaked++
			}
		}
		if s.abandoned() && !s.params.Shared && now.Sub(s.orphaned) > orphanLife {
			leaked += b.end(s)
			continue
		}
		if now.Sub(s.lastCall) > limit && s.holds() == 0 {
			b.end(s)
		}
	}
	b.totals.Leaked += int64(leaked)
	return leaked
}

// sorted returns the sessions in a fixed order.
func sorted(sessions map[ID]*session) []*session {
	all := make([]*session, 0, len(sessions))
	for _, s := range sessions {
		all = append(all, s)
	}
	slices.SortFunc(all, func(x, y *session) int { return cmp.Compare(x.id, y.id) })
	return all
}

// hold makes a holder of path, and charges it. urgent puts it first in its stream.
func (b *Book) hold(now time.Time, st *stream, path string, seq int, urgent bool) (*holder, error) {
	n, err := b.enter(st, path)
	if err != nil {
		return nil, err
	}
	e := b.entries[n]
	if e == nil {
		e = &Entry{name: n, tenant: st.session.tenant}
		b.entries[n] = e
	}
	n = e.name // one text for all
	st.next++
	h := &holder{stream: st, entry: e, use: use{n, seq}, named: now, order: st.next}
	if len(e.holders) == 0 {
		e.charger = st.session
	}
	e.add(h)
	st.holders[h.use] = h
	st.settle(h)
	if e.state == Failed && !e.busy {
		e.Err = nil // perhaps it can be had by now
		e.setState(Requested)
	}
	if e.state <= Waiting {
		st.enqueue(h, urgent)
	}
	b.dirty[st.session.key] = true
	return h, nil
}

// remove takes a holder away. Its entry is gone with the last.
func (b *Book) remove(h *holder) {
	st, e := h.stream, h.entry
	delete(st.holders, h.use)
	e.remove(h)
	b.leave(st.session, h.use.name)
	h.gone = true
	if h.counted {
		h.counted = false
		st.outstanding--
	}
	b.dirty[st.session.key] = true
	if st.session.params.DropOnRelease {
		e.Drop = true
	}
	if len(e.holders) == 0 {
		if e.state == Waiting {
			e.tenant.waits(-1)
		}
		delete(b.entries, e.name)
		b.gone = append(b.gone, e)
		return
	}
	heir := e.heir()
	if e.charger == st.session {
		e.charger.charged -= e.charge
		e.charger = heir.stream.session
		e.charger.charged += e.charge
	}
	if e.state <= Waiting {
		heir.stream.enqueue(heir, heir.active)
	}
}

// stream returns a stream of s. A new one is charged.
func (b *Book) stream(s *session, index int) (*stream, error) {
	st := s.streams[index]
	if st == nil {
		cost := s.streamsCost(len(s.streams)+1) - s.streamsCost(len(s.streams))
		for {
			err := b.cfg.Ledger.Take(s.key.User(), budget.Names, cost)
			if err == nil {
				break
			}
			if !b.yield(s.key.User()) {
				return nil, err
			}
		}
		s.names += cost
		st = &stream{session: s, index: index, holders: make(map[use]*holder)}
		s.streams[index] = st
		b.order = append(b.order, st)
	}
	return st, nil
}

// Files is how many files, and how many bytes of them, are in some state.
type Files struct {
	Files int64 `json:"files"`
	Bytes int64 `json:"bytes"`
}

func (f *Files) add(e *Entry) {
	f.Files += max(int64(len(e.Objects)), 1)
	f.Bytes += e.Bytes
}

// Entry is a path that somebody holds.
type Entry struct {
	// Objects are the files that the path means, and Bytes their sizes together;
	// set when it is resolved.
	Objects []oss.Object
	Bytes   int64
	// Err is why it failed.
	Err error
	// Drop asks for its bytes to be dropped when it is gone.
	Drop bool

	name    name
	state   State
	holders []*holder
	// tenant is the user whose it is, who is charged for its objects, and for extra: those
	// beyond the first, in bytes of memory.
	tenant *tenant
	extra  int64
	// cost is what its objects cost, charge what of that is charged now, and charger the
	// session that it is charged to.
	cost    int64
	charge  int64
	charger *session
	// missing is what of cost its user was not charged yet after so many changes of that.
	missing struct {
		at    uint64
		bytes int64
	}
	lastRead time.Time
	// counted says that its objects are among those that its user is charged.
	counted bool
	// busy says that it was given out by NextResolve or NextFetch and that nobody
	// has told yet what became of it.
	busy bool
}

// Path returns the path, relative to the root of the mount.
func (e *Entry) Path() string { return e.name.String() }

// Who returns on whose behalf the entry is found and fetched.
func (e *Entry) Who() Who {
	if e.name.in == nil {
		return Who{}
	}
	return e.name.in.who
}

// Payer returns the user who is charged for what the entry means.
func (e *Entry) Payer() budget.User { return e.tenant.user }

// add makes h one of the holders, remove none.
func (e *Entry) add(h *holder) {
	h.at = len(e.holders)
	e.holders = append(e.holders, h)
}

func (e *Entry) remove(h *holder) {
	last := len(e.holders) - 1
	moved := e.holders[last]
	e.holders[h.at], moved.at = moved, h.at
	e.holders[last] = nil
	e.holders = e.holders[:last]
}

// State returns what has become of the entry so far.
func (e *Entry) State() State { return e.state }

// Held tells whether anybody holds the entry.
func (e *Entry) Held() bool { return len(e.holders) > 0 }

// heir returns the holder that announced it first, of those that are left.
func (e *Entry) heir() *holder {
	var first *holder
	for _, h := range e.holders {
		if first == nil || cmp.Or(h.named.Compare(first.named), cmp.Compare(h.stream.session.id, first.stream.session.id),
			cmp.Compare(h.stream.index, first.stream.index), cmp.Compare(h.order, first.order)) < 0 {
			first = h
		}
	}
	return first
}
