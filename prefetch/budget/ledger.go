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
	// Waits are ioctls that wait in the daemon for a call to end, by their number: each has a
	// buffer of 1 MiB there, of some 40 that all requests share.
	Waits
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
	Waits:    {"waiting ioctls", "", "ask again later, as the answer says"},
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
	return Limits{Sessions: 1536, Names: 24 << 20, Calls: 2048, Requests: 8 << 20, Answers: 8 << 20, Jobs: 32, Waits: 16}
}

// User is somebody to whom something is charged.
type User struct {
	UID uint32
	// Guest says that the user is root or the daemon's own by its id alone, as root of a
	// container is: it is charged as everybody else is, beside the user whose id it has.
	Guest bool
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
	users        map[User]int64
	refused      uint64
}

// New returns a ledger in which nobody has anything. owner is the daemon's own user, who
// may take all, as root may.
func New(limits Limits, owner uint32) *Ledger {
	l := &Ledger{limits: limits, owner: owner}
	for k := range l.mu.kinds {
		l.mu.kinds[k].users = make(map[User]int64)
	}
	return l
}

// Default returns a ledger with [DefaultLimits], of which root alone may take all.
func Default() *Ledger { return New(DefaultLimits(), 0) }

// Privileged reports whether a user may take all there is.
func (l *Ledger) Privileged(u User) bool { return !u.Guest && (u.UID == 0 || u.UID == l.owner) }

// Take notes that a user takes n more of a kind, or returns an [*Exceeded] and notes
// nothing.
func (l *Ledger) Take(u User, k Kind, n int64) error {
	if n == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	a := &l.mu.kinds[k]
	if err := l.check(a, u, k, n); err != nil {
		return err
	}
	a.used += n
	a.users[u] += n
	if !l.Privileged(u) {
		a.others += n
	}
	return nil
}

// Check returns the error that Take would return.
func (l *Ledger) Check(u User, k Kind, n int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.check(&l.mu.kinds[k], u, k, n)
}

func (l *Ledger) check(a *account, u User, k Kind, n int64) error {
	left := l.left(a, u, k)
	if n <= left {
		return nil
	}
	a.refused++
	used := a.users[u]
	return &Exceeded{Kind: k, User: u, Used: used, Wanted: n, Limit: used + max(left, 0)}
}

// Give notes that a user gives n back that it took.
func (l *Ledger) Give(u User, k Kind, n int64) {
	if n == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	a := &l.mu.kinds[k]
	a.used -= n
	if !l.Privileged(u) {
		a.others -= n
	}
	if a.users[u] -= n; a.users[u] == 0 {
		delete(a.users, u)
	}
}

// Left returns how much a user may take of a kind now. It is never negative.
func (l *Ledger) Left(u User, k Kind) int64 { return l.LeftAfter(u, k, 0) }

// LeftAfter returns what Left would after the user gave n back.
func (l *Ledger) LeftAfter(u User, k Kind, n int64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(l.left(&l.mu.kinds[k], u, k)+n, 0)
}

// Most returns how much a user may have of a kind at best, when nobody else has any.
func (l *Ledger) Most(u User, k Kind) int64 {
	if l.Privileged(u) {
		return l.limits[k]
	}
	return l.limits[k] / 4 * 3 / 2
}

// left is Left, negative where a user has more than it may take now, because others came.
func (l *Ledger) left(a *account, u User, k Kind) int64 {
	total := l.limits[k]
	left := total - a.used
	if l.Privileged(u) {
		return left
	}
	shared := total / 4 * 3
	own := a.users[u]
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
	User User
	// Used is what it has, Wanted how much more it wanted, and Limit what it may have in
	// all at present.
	Used, Wanted, Limit int64
}

// Error names the kind, the amounts, the limit and what can be done.
func (e *Exceeded) Error() string {
	k, guest := &kinds[e.Kind], ""
	if e.User.Guest {
		guest = ", which is not the daemon's own,"
	}
	return fmt.Sprintf("%s: user %d%s has %d%s and wants %d more, the limit for this user is %d at present: %s",
		k.name, e.User.UID, guest, e.Used, k.unit, e.Wanted, e.Limit, k.remedy)
}
