package session

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pailfs/pailfs/oss"
)

// inn is a book and users who announce, read and let go. Files are called SIZE-anything.
type inn struct {
	*testing.T
	*Book
	now  time.Time
	most int64
}

func newInn(t *testing.T, budget int64) *inn {
	return &inn{t, NewBook(Config{Budget: budget}), time.Unix(1e9, 0), budget}
}

// enters opens a session of a user, with rights of its own.
func (i *inn) enters(uid uint32, worker int) Name {
	i.Helper()
	who := As(uid, uid, Groups{}, Base{Path: fmt.Sprint(worker)})
	id, _, err := i.Open(i.now, ID(fmt.Sprint(uid, ".", worker)), Key{UID: uid, Worker: worker}, Params{Buffer: 1000, Who: who})
	if err != nil {
		i.Fatal(err)
	}
	return Name{Session: id, UID: uid}
}

// files returns n names of files of a size.
func files(size, n int) (names []string) {
	for k := range n {
		names = append(names, fmt.Sprintf("%d-%03d", size, k))
	}
	return names
}

// fetch lets everything be found and fetched that can.
func (i *inn) fetch() {
	i.Helper()
	for e := i.NextResolve(); e != nil; e = i.NextResolve() {
		var size int64
		_, _ = fmt.Sscanf(e.Path(), "%d-", &size)
		i.Resolved(e, []oss.Object{{Key: e.Path(), Size: size}}, 0, nil)
		i.within()
	}
	for e := i.NextFetch(); e != nil; e = i.NextFetch() {
		i.within()
		i.Fetched(e, false, nil)
	}
	i.within()
}

// within fails the test if more is charged than may be.
func (i *inn) within() {
	i.Helper()
	if err := i.Check(); err != nil {
		i.Fatal(err)
	}
	if i.shares.charged > i.most || i.shares.others > i.most/4*3 {
		i.Fatalf("%d bytes are charged, %d of them to others, of %d", i.shares.charged, i.shares.others, i.most)
	}
}

// release lets go of files.
func (i *inn) release(n Name, paths ...string) {
	i.Helper()
	if _, _, err := i.Release(i.now, n, paths); err != nil {
		i.Fatal(err)
	}
	for _, e := range i.TakeGone() {
		i.Freed(e)
	}
	i.within()
}

// count returns how many files of a session are in a state.
func (i *inn) count(n Name, state State) (count int) {
	for _, st := range i.sessions[n.Session].streams {
		for _, h := range st.holders {
			if h.entry.state == state {
				count++
			}
		}
	}
	return count
}

func (i *inn) want(n Name, state State, count int) {
	i.Helper()
	if got := i.count(n, state); got != count {
		i.Errorf("%d files of session %s are %s, want %d", got, n.Session, state, count)
	}
}

func TestAQuarterOfTheRoomIsRoots(t *testing.T) {
	i := newInn(t, 4000)
	many := i.enters(7, 0)
	announce(t, i.Book, many, files(100, 200)...)
	i.fetch()
	i.want(many, Ready, 30) // what others leave is all that is not root's
	// Others who announce much more, and large things, keep nothing of root's back.
	for uid := uint32(8); uid < 20; uid++ {
		announce(t, i.Book, i.enters(uid, 0), files(150, 50)...)
	}
	i.fetch()
	root := i.enters(0, 0)
	announce(t, i.Book, root, files(100, 50)...)
	i.fetch()
	i.want(root, Ready, 10)
	// Root may have what is left, if nobody else waits.
	i = newInn(t, 4000)
	root = i.enters(0, 0)
	announce(t, i.Book, root, files(100, 50)...)
	i.fetch()
	i.want(root, Ready, 40)
}

func TestRoomThatIsLetGoGoesToWhoHasLess(t *testing.T) {
	i := newInn(t, 4000)
	much, little := i.enters(7, 0), i.enters(8, 0)
	announce(t, i.Book, much, files(100, 100)...)
	i.fetch()
	announce(t, i.Book, little, files(100, 100)...)
	i.fetch()
	i.want(much, Ready, 30)
	i.want(little, Ready, 0)
	for k := range 15 {
		i.release(much, files(100, 100)[k])
		i.fetch()
		i.want(much, Ready, 29-k)
		i.want(little, Ready, k+1)
	}
	// From here on each has what it lets go.
	i.release(much, files(100, 100)[15])
	i.fetch()
	i.want(much, Ready, 15)
	// A third, who wants no more than a little, leaves the rest to the two.
	third := i.enters(9, 0)
	announce(t, i.Book, third, files(100, 2)...)
	i.release(little, files(100, 2)...)
	i.fetch()
	i.want(third, Ready, 2)
	i.want(little, Ready, 13)
}

func TestWhoExceedsItsShareWaitsForWhoDoesNot(t *testing.T) {
	i := newInn(t, 4000)
	small, large := i.enters(7, 0), i.enters(8, 0)
	announce(t, i.Book, small, files(100, 100)...)
	i.fetch()
	announce(t, i.Book, large, "1400-large")
	i.fetch()
	for k := range 13 {
		i.release(small, files(100, 100)[k])
		i.fetch()
		if got := i.count(small, Ready); got != 29-k {
			t.Fatalf("small files overtook the large one: %d, want %d", got, 29-k)
		}
	}
	i.release(small, files(100, 100)[13])
	i.fetch()
	i.want(large, Ready, 1)
	i.want(small, Ready, 16)
}

func TestWhatIsLargerThanAShareHoldsUpNobody(t *testing.T) {
	i := newInn(t, 4000)
	small, large := i.enters(7, 0), i.enters(8, 0)
	announce(t, i.Book, small, files(100, 100)...)
	i.fetch()
	announce(t, i.Book, large, "1600-large", "100-after")
	i.fetch()
	// It is streamed, and what comes after it has its turn.
	i.want(large, Streamed, 1)
	i.want(large, Waiting, 1)
	i.release(small, files(100, 100)[0])
	i.fetch()
	i.want(large, Ready, 1)
	i.want(small, Ready, 29)
	// While there is room for it, it is fetched, whatever the shares are.
	i = newInn(t, 4000)
	small, large = i.enters(7, 0), i.enters(8, 0)
	announce(t, i.Book, small, files(100, 10)...)
	announce(t, i.Book, large, "1900-large", "200-after", "3100-never")
	i.fetch()
	i.want(small, Ready, 10)
	i.want(large, Ready, 1)
	i.want(large, Waiting, 1)
	i.release(large, "1900-large", "200-after")
	i.fetch()
	i.want(large, Streamed, 1)
}

func TestAnObjectIsChargedOnceAUser(t *testing.T) {
	i := newInn(t, 4000)
	first, second, other := i.enters(7, 1), i.enters(7, 2), i.enters(8, 1)
	paths := files(100, 20)
	announce(t, i.Book, first, paths...)
	announce(t, i.Book, second, paths...)
	i.fetch()
	i.want(first, Ready, 20)
	i.want(second, Ready, 20)
	if i.shares.charged != 2000 {
		t.Errorf("%d bytes are charged for 20 files of one user", i.shares.charged)
	}
	announce(t, i.Book, other, paths[:5]...)
	i.fetch()
	if i.shares.charged != 2500 {
		t.Errorf("%d bytes are charged, 5 files are another user's", i.shares.charged)
	}
	i.release(first, paths...)
	if i.shares.charged != 2500 {
		t.Errorf("%d bytes are charged though all is still held", i.shares.charged)
	}
	i.release(second, paths[:19]...)
	if i.shares.charged != 600 {
		t.Errorf("%d bytes are charged, one file is held and 5 are another user's", i.shares.charged)
	}
	// What the user has already needs no room.
	announce(t, i.Book, second, files(200, 100)...)
	i.fetch()
	announce(t, i.Book, first, paths[19])
	i.fetch()
	i.want(first, Ready, 1)
}

func TestWhoComesToAFullHouseMayAnnounceItsShare(t *testing.T) {
	i := newInn(t, 4000)
	much, late := i.enters(7, 0), i.enters(8, 0)
	announce(t, i.Book, much, files(100, 100)...)
	i.fetch()
	announce(t, i.Book, late, "100-first")
	i.fetch()
	if q, err := i.Quota(i.now, late); err != nil || q != 15 {
		t.Errorf("the quota is %d, %v, want half of what the two may have", q, err)
	}
}

// TestWhatIsGivenBackWasCharged: also where two names tell different sizes of one version.
func TestWhatIsGivenBackWasCharged(t *testing.T) {
	i := newInn(t, 1000)
	n := i.enters(7, 0)
	for _, path := range []string{"10-a", "500-b"} {
		announce(t, i.Book, n, path)
	}
	for e := i.NextResolve(); e != nil; e = i.NextResolve() {
		var size int64
		_, _ = fmt.Sscanf(e.Path(), "%d-", &size)
		i.Resolved(e, []oss.Object{{Key: "same", ETag: "same", Size: size}}, 0, nil)
	}
	for e := i.NextFetch(); e != nil; e = i.NextFetch() {
		i.Fetched(e, false, nil)
	}
	i.within()
	i.release(n, "10-a")
	i.release(n, "500-b")
	if _, err := i.Close(i.now, n.Session, n.UID, false); err != nil {
		t.Fatal(err)
	}
	for _, e := range i.TakeGone() {
		i.Freed(e)
	}
	if i.shares.charged != 0 {
		t.Errorf("%d bytes are charged for nothing", i.shares.charged)
	}
}

// TestNobodyStarves lets users of all kinds announce, read and let go at random. Whoever
// reads gets on, however much the others want, who never end.
func TestNobodyStarves(t *testing.T) {
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 15))
		i := newInn(t, 4000)
		type reader struct {
			Name
			announced, read int
			sizes           func() int
			next            []string
		}
		between := func(least, most int) func() int { return func() int { return least + rng.IntN(most-least) } }
		readers := []*reader{
			{Name: i.enters(0, 0), sizes: between(1, 1000)},
			{Name: i.enters(7, 0), sizes: between(1, 50)},
			{Name: i.enters(7, 1), sizes: between(1, 500)},
			{Name: i.enters(8, 0), sizes: between(500, 4500)},
			{Name: i.enters(9, 0), sizes: between(1, 4000)},
			{Name: i.enters(10, 0), sizes: between(990, 1000)},
		}
		const each, ahead = 30, 20
		for step := 0; ; step++ {
			if step > 20_000 {
				for _, r := range readers {
					t.Errorf("seed %d: %s has read %d of %d", seed, r.Session, r.read, r.announced)
				}
				return
			}
			r := readers[rng.IntN(len(readers))]
			for len(r.next) < ahead {
				path := fmt.Sprintf("%d-%s.%d", r.sizes(), r.Session, r.announced)
				announce(t, i.Book, r.Name, path)
				r.next = append(r.next, path)
				r.announced++
			}
			i.fetch()
			if len(r.next) > 0 {
				f, err := i.Status(i.now, r.Name, r.next[:1])
				if err != nil {
					t.Fatal(err)
				}
				if f[0].Ready || f[0].State == "streamed" {
					i.release(r.Name, r.next[0])
					r.next = r.next[1:]
					r.read++
				}
			}
			done := 0
			for _, r := range readers {
				if r.read >= each {
					done++
				}
			}
			if done == len(readers) {
				break
			}
		}
		for _, r := range readers {
			if _, err := i.Close(i.now, r.Session, r.UID, false); err != nil {
				t.Fatal(err)
			}
		}
		for _, e := range i.TakeGone() {
			i.Freed(e)
		}
		if i.shares.charged != 0 || len(i.shares.tenants) != 0 {
			t.Errorf("seed %d: %d bytes are charged, of %d users", seed, i.shares.charged, len(i.shares.tenants))
		}
	}
}
