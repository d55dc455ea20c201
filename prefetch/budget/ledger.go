package budget

import (
	"fmt"
	"sync"
)

// Kind is something that users make the daemon keep.
type Kind uint8

// The kinds.
const (
	// Sessions are loader sessions, by their number.
	Sessions Kind = iota
	// Names are what sessions announced and hold, in bytes of the daemon's memory.
	Names
	// Calls are the calls that run or whose answer is being fetched, by their number.
	Calls
	// Requests are the parameters of the calls that run, in bytes.
	Requests
	// Answers are the answers that are being fetched, in bytes.
	Answers
	// Jobs are warm jobs, by their number.
	Jobs
	// Kinds is how many there are.
	Kinds
)

// kinds are the words for each kind: what it is called, in which unit it is counted, and
// what its user can do who has too much of it.
var kinds = [Kinds]struct{ name, unit, remedy string }{
	Sessions: {"sessions", "", "close sessions that are not used, or let several workers share one"},
	Names:    {"announced names", " bytes", "announce less ahead, and release what was read"},
	Calls:    {"calls", "", "wait for the answers of those that were made"},
	Requests: {"waiting requests", " bytes", "name fewer paths in a call, and wait in fewer calls at once"},
	Answers:  {"answers", " bytes", "fetch the answers of the calls that were made, or drop them"},
	Jobs:     {"warm jobs", "", "close jobs that are finished, and name more paths in each"},
}

// String returns the name of the kind, in the plural.
func (k Kind) String() string { return kinds[k].name }

// Limits are the totals of all kinds.
type Limits [Kinds]int64

// DefaultLimits are what the daemon gives away. All of it together, at its worst, and what
// the collector leaves lying beside it, is less than the 150 MB that the daemon may have
// beside its memory tier.
func DefaultLimits() Limits {
	return Limits{Sessions: 1536, Names: 24 << 20, Calls: 2048, Requests: 8 << 20, Answers: 8 << 20, Jobs: 32}
}

// Ledger says who has how much of what. It is safe for concurrent use.
type Ledger struct {
	limits Limits
	owner  uint32

	mu struct {
		sync.Mutex
		kinds [Kinds]account
	}
}

// account is one kind: what all users have, what those have who are not privileged, and
// what each of these has.
type account struct {
	used, others int64
	users        map[uint32]int64
	refused      uint64
}

// New returns a ledger in which nobody has anything. owner is the daemon's own user, who
// may take all, as root may.
func New(limits Limits, owner uint32) *Ledger {
	l := &Ledger{limits: limits, owner: owner}
	for k := range l.mu.kinds {
		l.mu.kinds[k].users = make(map[uint32]int64)
	}
	return l
}

// Default returns a ledger with [DefaultLimits], of which root alone may take all.
func Default() *Ledger { return New(DefaultLimits(), 0) }

// Privileged reports whether a user may take all there is.
func (l *Ledger) Privileged(uid uint32) bool { return uid == 0 || uid == l.owner }

// Take notes that a user takes n more of a kind, or returns an [*Exceeded] and notes
// nothing.
func (l *Ledger) Take(uid uint32, k Kind, n int64) error {
	if n == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	a := &l.mu.kinds[k]
	if err := l.check(a, uid, k, n); err != nil {
		return err
	}
	a.used += n
	a.users[uid] += n
	if !l.Privileged(uid) {
		a.others += n
	}
	return nil
}

// Check returns the error that Take would return.
func (l *Ledger) Check(uid uint32, k Kind, n int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.check(&l.mu.kinds[k], uid, k, n)
}

func (l *Ledger) check(a *account, uid uint32, k Kind, n int64) error {
	left := l.left(a, uid, k)
	if n <= left {
		return nil
	}
	a.refused++
	used := a.users[uid]
	return &Exceeded{Kind: k, UID: uid, Used: used, Wanted: n, Limit: used + max(left, 0)}
}

// Give notes that a user gives n back that it took.
func (l *Ledger) Give(uid uint32, k Kind, n int64) {
	if n == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	a := &l.mu.kinds[k]
	a.used -= n
	if !l.Privileged(uid) {
		a.others -= n
	}
	if a.users[uid] -= n; a.users[uid] == 0 {
		delete(a.users, uid)
	}
}

// Left returns how much a user may take of a kind now. It is never negative.
func (l *Ledger) Left(uid uint32, k Kind) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(l.left(&l.mu.kinds[k], uid, k), 0)
}

// left is Left, negative where a user has more than it may take now, because others came.
func (l *Ledger) left(a *account, uid uint32, k Kind) int64 {
	total := l.limits[k]
	left := total - a.used
	if l.Privileged(uid) {
		return left
	}
	shared := total / 4 * 3
	own := a.users[uid]
	return min(left, shared-a.others, (shared-(a.others-own))/2-own)
}

// Use is how much of a kind is taken.
type Use struct {
	Used, Limit int64
	// Users is how many have some of it, and Refused how often somebody wanted more than
	// there was.
	Users   int
	Refused uint64
}

// Use returns how much of a kind is taken now.
func (l *Ledger) Use(k Kind) Use {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := &l.mu.kinds[k]
	return Use{Used: a.used, Limit: l.limits[k], Users: len(a.users), Refused: a.refused}
}

// Exceeded means that a user wanted more than it may have.
type Exceeded struct {
	Kind Kind
	UID  uint32
	// Used is what it has, Wanted how much more it wanted, and Limit what it may have in
	// all at present.
	Used, Wanted, Limit int64
}

// Error names the kind, the amounts, the limit and what can be done.
func (e *Exceeded) Error() string {
	k := &kinds[e.Kind]
	return fmt.Sprintf("%s: user %d has %d%s and wants %d more, the limit for this user is %d at present: %s",
		k.name, e.UID, e.Used, k.unit, e.Wanted, e.Limit, k.remedy)
}
