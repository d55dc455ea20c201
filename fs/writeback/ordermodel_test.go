package writeback

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pailfs/pailfs/fs/writeback/internal/order"
)

// historian knows in what order names were committed, and whether objects appear in that
// order.
type historian struct {
	*testing.T
	sync.Mutex
	log []string
	now int
	// commits are the moments at which something was committed at a path, by the number
	// in its content; gone when it was removed last; inPlace are numbers of contents that
	// were written over the one before.
	commits map[string]map[int]int
	gone    map[string]int
	inPlace map[int]bool
	// there is the moment of what the bucket has.
	there map[string]int
}

func newHistorian(t *testing.T) *historian {
	return &historian{
		T: t, commits: make(map[string]map[int]int), gone: make(map[string]int), inPlace: make(map[int]bool), there: make(map[string]int),
	}
}

func (h *historian) say(format string, args ...any) {
	h.log = append(h.log, fmt.Sprintf("%d ", h.now)+fmt.Sprintf(format, args...))
}

// committed notes that the content with this number is about to be committed at path.
func (h *historian) committed(path string, number int, inPlace bool) {
	h.Lock()
	defer h.Unlock()
	h.now++
	if h.commits[path] == nil {
		h.commits[path] = make(map[int]int)
	}
	h.commits[path][number] = h.now
	h.inPlace[number] = inPlace
	h.say("commit %s #%d in place %v", path, number, inPlace)
}

func (h *historian) removed(path string) {
	h.Lock()
	defer h.Unlock()
	h.now++
	h.gone[path] = h.now
	h.say("remove %s", path)
}

// seen is told of every object that appears.
func (h *historian) seen(key string, content []byte) {
	h.Lock()
	defer h.Unlock()
	path, number := strings.TrimPrefix(key, "p/"), 0
	if _, err := fmt.Sscanf(string(content), "#%d ", &number); err != nil {
		return // a directory
	}
	at := h.commits[path][number]
	h.say("  %s #%d appears", path, number)
	if at < h.there[path] {
		h.Errorf("%s #%d replaces what came later\n%s", path, number, strings.Join(h.log, "\n"))
	}
	h.there[path] = at
	if h.inPlace[number] {
		// It keeps its place, also for what is beside it and waits for it.
		return
	}
	dir := order.Parent("/" + path)
	for other, commits := range h.commits {
		if other == path || !strings.HasPrefix("/"+other, dir+"/") || h.gone[other] > 0 {
			continue
		}
		last := 0
		for _, t := range commits {
			if t < at {
				last = max(last, t)
			}
		}
		if h.there[other] < last {
			h.Errorf("%s of moment %d appeared, and %s of %d had not\n%s", path, at, other, last, strings.Join(h.log, "\n"))
		}
	}
}

// author writes, replaces and removes files one after another.
type author struct {
	*world
	*historian
	rand   *rand.Rand
	number int
	files  map[string]string
}

var authored = []string{"latest", "d/s", "d/t", "d/e/u", "f/v"}

func (a *author) content() string {
	a.number++
	return fmt.Sprintf("#%d %s", a.number, strings.Repeat("x", a.rand.IntN(2)*a.rand.IntN(300)))
}

func splitPath(path string) (dir, base string) {
	i := strings.LastIndexByte(path, '/')
	return path[:max(i, 0)], path[i+1:]
}

func (a *author) step() {
	path := authored[a.rand.IntN(len(authored))]
	dir, base := splitPath(path)
	_, exists := a.files[path]
	// New small files that are closed within a second may overtake one another.
	time.Sleep(1100 * time.Millisecond)
	switch what := a.rand.IntN(20); {
	case what < 10:
		content := a.content()
		a.world.write(dir, base+".new", content)
		time.Sleep(time.Duration(a.rand.IntN(2)*1100) * time.Millisecond)
		a.committed(path, a.number, false)
		a.move(dir, base+".new", base)
		a.files[path] = content
	case what < 14:
		content := a.content()
		a.committed(path, a.number, exists)
		a.world.write(dir, base, content)
		a.files[path] = content
	case what < 15:
		if !exists {
			return
		}
		a.removed(path)
		if err := a.space.Unlink(a.world.Context(), dir, base); err != nil {
			a.world.Fatal(err)
		}
		delete(a.files, path)
	case what < 16:
		time.Sleep(time.Duration(a.rand.IntN(60)) * time.Second)
	case what < 17:
		a.historian.Lock()
		a.say("--- crash")
		a.historian.Unlock()
		a.crash(false)
	default:
		a.slowly(time.Duration(a.rand.IntN(4)*5) * time.Second)
	}
}

// Whatever is closed, moved over something else or removed, and whenever the daemon dies:
// no object appears before what was closed before it beside it or below.
func TestObjectsAppearInTheOrderOfTheirCloses(t *testing.T) {
	for seed := range modelSeeds() {
		bubble(t, func(t *testing.T) {
			w := newWorldWith(t, seed, func(c *Config) {
				l := usualLimits
				l.inline, l.small, l.part, l.growth, l.base, l.copy, l.copyPart, l.journal = 30, 100, 40, 3, 50, 150, 50, 4000
				c.limits = &l
			})
			a := &author{world: w, historian: newHistorian(t), rand: rand.New(rand.NewPCG(seed, 20)), files: make(map[string]string)}
			w.store.seen = a.seen
			w.store.faults = []float64{0, 0.1, 0.4}[a.rand.IntN(3)]
			for _, dir := range []string{"d", "d/e", "f"} {
				up, base := splitPath(dir)
				if err := w.space.Mkdir(t.Context(), up, base, SetAttr{}); err != nil {
					t.Fatal(err)
				}
			}
			for range 40 {
				a.step()
				w.checkJournal()
				for path, want := range a.files {
					dir, base := splitPath(path)
					if got, err := w.read(dir, base); err != nil || got != want {
						t.Fatalf("seed %d: %s holds %.10q, %v, want %.10q\n%s", seed, path, got, err, want, strings.Join(a.historian.log, "\n"))
					}
				}
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
			w.store.Lock()
			w.store.faults, w.store.slow = 0, 0
			w.store.Unlock()
			w.drain()
			for _, path := range authored {
				w.holds("p/"+path, a.files[path])
			}
			time.Sleep(time.Hour)
			w.stop()
			if t.Failed() {
				t.Fatalf("seed %d\n%s", seed, strings.Join(a.historian.log, "\n"))
			}
		})
		if t.Failed() {
			return
		}
	}
}
