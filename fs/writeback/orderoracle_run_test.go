package writeback

import (
	"errors"
	"fmt"
	"hash/crc64"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pailfs/pailfs/fs/writeback/internal/order"
	"github.com/pailfs/pailfs/oss"
)

// orderAuthor is a program that does things to files, of which the oracle is told.
type orderAuthor struct {
	*world
	oracle *orderOracle
	rand   *rand.Rand
	number int
	// files are the contents, dirs the directories; busy are names that are open.
	files  map[string]string
	dirs   map[string]bool
	busy   map[string]bool
	denied string
}

func newOrderAuthor(t *testing.T, seed uint64) *orderAuthor {
	t.Helper()
	w := newWorldWith(t, seed, func(c *Config) {
		l := usualLimits
		l.inline, l.small, l.part, l.growth, l.base, l.copy, l.copyPart, l.journal = 30, 100, 40, 3, 50, 150, 50, 4000
		c.limits = &l
	})
	a := &orderAuthor{
		world: w, oracle: newOrderOracle(t), rand: rand.New(rand.NewPCG(seed, 40)),
		files: make(map[string]string), dirs: map[string]bool{"": true}, busy: make(map[string]bool),
	}
	w.store.Lock()
	w.store.seen, w.store.gone = a.oracle.appeared, a.oracle.gone
	w.store.seed = seed + 1
	w.store.faults = []float64{0, 0.1, 0.3}[a.rand.IntN(3)]
	w.store.Unlock()
	for _, dir := range []string{"d", "d/e", "f"} {
		a.mkdir(dir)
	}
	return a
}

func (a *orderAuthor) must(err error) {
	a.Helper()
	if err != nil {
		a.Fatalf("%v\n%s", err, strings.Join(a.oracle.log, "\n"))
	}
}

func (a *orderAuthor) mkdir(dir string) {
	a.Helper()
	up, base := splitPath(dir)
	a.must(a.space.Mkdir(a.Context(), up, base, SetAttr{}))
	a.dirs[dir] = true
}

func (a *orderAuthor) pick(from []string) string { return from[a.rand.IntN(len(from))] }

// name returns a name that is not open; "" if there is none.
func (a *orderAuthor) name() string {
	path := order.Join(a.pick(slices.Sorted(maps.Keys(a.dirs))), a.pick([]string{"latest", "s", "t"}))
	if a.busy[path] {
		return ""
	}
	return path
}

func (a *orderAuthor) content() (content string, small bool) {
	a.number++
	content = fmt.Sprintf("#%d %s", a.number, strings.Repeat("x", a.rand.IntN(2)*a.rand.IntN(300)))
	return content, int64(len(content)) <= a.space.cfg.limits.small
}

// open opens a name, and makes it if there is none.
func (a *orderAuthor) open(path string, truncate bool) *Handle {
	a.Helper()
	dir, base := splitPath(path)
	if _, exists := a.files[path]; exists {
		h, err := a.space.Open(a.Context(), dir, base, OpenOptions{Write: true, Truncate: truncate})
		a.must(err)
		return h
	}
	h, err := a.space.Create(a.Context(), dir, base, CreateOptions{})
	a.must(err)
	return h
}

// write writes and closes a file, with something else between where that is not nil.
func (a *orderAuthor) write(path string, truncate bool, between func()) {
	a.Helper()
	_, exists := a.files[path]
	if exists {
		a.oracle.opened(path, truncate, true)
	}
	h := a.open(path, truncate)
	if between != nil {
		a.busy[path] = true
		between()
		delete(a.busy, path)
	}
	content, small := a.content()
	if old := a.files[path]; !truncate && len(old) > len(content) {
		content += strings.Repeat("y", len(old)-len(content))
	}
	_, err := h.WriteAt(a.Context(), []byte(content), 0)
	a.must(err)
	a.oracle.note(fmt.Sprintf("close %s #%d", path, a.number), change{path: path, number: a.number, again: exists, small: small})
	// A close tells that what was closed before is refused.
	if err := h.Flush(a.Context()); !errors.Is(err, oss.ErrAccessDenied) {
		a.must(err)
	}
	h.Release()
	if exists {
		a.oracle.opened(path, truncate, false)
	}
	a.files[path] = content
}

// rename moves a file or a directory.
func (a *orderAuthor) rename(from, to string) {
	a.Helper()
	var there, gone []change
	for _, path := range slices.Sorted(maps.Keys(a.files)) {
		if path != from && !strings.HasPrefix(path, from+"/") {
			continue
		}
		moved := to + path[len(from):]
		number := 0
		_, err := fmt.Sscanf(a.files[path], "#%d ", &number)
		a.must(err)
		there = append(there, change{path: moved, number: number, replaces: true, renamed: true})
		gone = append(gone, change{path: path, replaces: true, renamed: true, to: moved})
		defer func() { a.files[moved] = a.files[path]; delete(a.files, path) }()
	}
	a.oracle.note(fmt.Sprintf("mv %s %s", from, to), there...)
	a.oracle.note("", gone...)
	dir, base := splitPath(from)
	toDir, toBase := splitPath(to)
	_, err := a.space.Rename(a.Context(), dir, base, toDir, toBase, 0)
	a.must(err)
}

func (a *orderAuthor) renameDir() {
	a.Helper()
	from, to := a.pick([]string{"d/e", "f/e", "g"}), a.pick([]string{"d/e", "f/e", "g"})
	if !a.dirs[from] || a.dirs[to] {
		return
	}
	for path := range a.busy {
		if strings.HasPrefix(path, from+"/") {
			return
		}
	}
	a.rename(from, to)
	delete(a.dirs, from)
	a.dirs[to] = true
}

func (a *orderAuthor) remove(path string) {
	a.Helper()
	a.oracle.note("rm "+path, change{path: path})
	dir, base := splitPath(path)
	a.must(a.space.Unlink(a.Context(), dir, base))
	delete(a.files, path)
}

// refuse lets the store refuse another name, or none.
func (a *orderAuthor) refuse(path string) {
	a.oracle.Lock()
	a.oracle.say("refused is %q, no longer %q", path, a.denied)
	if a.denied != "" {
		x := a.oracle.refusals[a.denied]
		x.end = time.Now()
		a.oracle.refusals[a.denied] = x
	}
	if path != "" {
		a.oracle.refusals[path] = opening{began: time.Now()}
	}
	a.oracle.Unlock()
	if a.denied != "" {
		a.deny("p/"+a.denied, false)
	}
	if a.denied = path; path != "" {
		a.deny("p/"+path, true)
	}
}

func (a *orderAuthor) kill() {
	a.oracle.note("--- kill")
	a.crash(false)
}

func (a *orderAuthor) step(depth int) {
	a.Helper()
	time.Sleep([]time.Duration{300 * time.Millisecond, 1100 * time.Millisecond, 1100 * time.Millisecond, 3 * time.Second}[a.rand.IntN(4)])
	path, other := a.name(), a.name()
	_, exists := a.files[path]
	if path == "" || other == "" {
		return
	}
	switch what := a.rand.IntN(24); {
	case what < 8:
		a.write(path, true, nil)
	case what < 9:
		a.write(path, false, nil)
	case what < 11 && depth == 0:
		a.write(path, a.rand.IntN(3) > 0, func() {
			for range 1 + a.rand.IntN(4) {
				a.step(1)
			}
		})
	case what < 14 && exists && path != other:
		a.rename(path, other)
	case what < 16:
		a.write(path+".new", true, nil)
		a.rename(path+".new", path)
	case what < 18 && exists:
		a.remove(path)
	case what < 19:
		a.renameDir()
	case what < 20:
		a.refuse([]string{"", path}[a.rand.IntN(2)])
	case what < 21 && depth == 0:
		a.kill()
	case what < 22 && depth == 0 && a.denied == "":
		a.oracle.note("flush")
		a.drain()
	default:
		a.slowly(time.Duration(a.rand.IntN(4)*5) * time.Second)
	}
}

// run does steps, and ends when all is in the bucket.
func (a *orderAuthor) run(steps int) {
	a.Helper()
	for range steps {
		a.step(0)
		if a.Failed() {
			return
		}
	}
	a.refuse("")
	time.Sleep(time.Second) // what was begun before may still be refused
	a.store.Lock()
	a.store.faults, a.store.slow = 0, 0
	a.store.Unlock()
	a.drain()
	for path, content := range a.files {
		a.holds("p/"+path, content)
	}
	time.Sleep(time.Hour)
	a.stop()
}

// Whatever programs do, the store refuses and however often the daemon dies: each state of the
// bucket is one that the promised order allows.
func TestObjectsAppearInTheOrder(t *testing.T) {
	for seed := range orderSeeds() {
		bubble(t, func(t *testing.T) {
			a := newOrderAuthor(t, seed)
			a.run(40)
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
			if testing.Verbose() {
				t.Logf("seed %d: %d moments, history %x, excuses %v", seed, a.oracle.now, crc64.Checksum([]byte(strings.Join(a.oracle.log, "\n")), crcTable), a.oracle.excuses)
			}
		})
		if t.Failed() {
			return
		}
	}
}
