package systemtest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// load is programs that write to a mount, each in its own way, and what they were told is
// safe. They go on until they are told to end or the mount is gone. What a program was
// refused it leaves alone from then on: what becomes of it is known no more.
type load struct {
	t  *testing.T
	w  *world
	at string
	// prefix begins the names of all directories that it has at the root.
	prefix string
	// durable says that only fsync makes safe what is written, as before a loss of power.
	durable bool
	// steady says that no call may fail as long as the mount is there, but for want of room:
	// uploads may fall behind.
	steady bool

	promised *promised
	edits    []*edited
	logs     []*logFile
	moves    []*moved

	programs []func()
	over     chan struct{}
	running  sync.WaitGroup

	mu struct {
		sync.Mutex
		// met is what a program read that had not been written, or was refused.
		met []error
	}
}

// newLoad returns a load without programs for a world that is to be mounted.
func newLoad(w *world) *load {
	return &load{t: w.t, w: w, at: w.at, promised: newPromised(), over: make(chan struct{})}
}

// trainers adds n programs that write checkpoints.
func (l *load) trainers(n int) {
	for i := range n {
		l.programs = append(l.programs, func() { l.train(fmt.Sprint(l.prefix, "trainer", i)) })
	}
}

// editors adds n programs, each of which edits a few objects between least and most.
func (l *load) editors(rng *rand.Rand, n, each int, least, most int64) {
	for i := range n {
		var mine []*edited
		for _, f := range l.w.add(fmt.Sprint(l.prefix, "edited", i), someSizes(rng, each, least, most)...) {
			mine = append(mine, &edited{base: f.Versions[0]})
		}
		l.edits = append(l.edits, mine...)
		l.keep(rng, mine, func(e *edited, chance *rand.Rand) error {
			return e.edit(filepath.Join(l.at, e.base.Key), chance, 1+chance.IntN(4), !l.durable)
		})
	}
}

// rewriters adds n programs that write an object anew, of at most so many bytes, faster than it
// is uploaded.
func (l *load) rewriters(rng *rand.Rand, n int, most int64) {
	for i := range n {
		var mine []*edited
		for _, f := range l.w.add(fmt.Sprint(l.prefix, "rewritten", i), 1000) {
			mine = append(mine, &edited{base: f.Versions[0]})
		}
		l.edits = append(l.edits, mine...)
		l.keep(rng, mine, func(e *edited, chance *rand.Rand) error {
			defer l.rest(time.Duration(chance.IntN(200)) * time.Millisecond)
			return e.rewrite(filepath.Join(l.at, e.base.Key), chance, most, !l.durable)
		})
	}
}

// keep adds a program that does something with one of its objects, again and again.
func (l *load) keep(rng *rand.Rand, mine []*edited, do func(*edited, *rand.Rand) error) {
	chance := rand.New(rand.NewPCG(rng.Uint64(), 0))
	l.programs = append(l.programs, func() {
		for len(mine) > 0 && l.goesOn() {
			i := chance.IntN(len(mine))
			if err := do(mine[i], chance); err != nil {
				l.meet(err)
				mine = append(mine[:i:i], mine[i+1:]...)
			}
		}
	})
}

// appenders adds n programs that write a log.
func (l *load) appenders(rng *rand.Rand, n int) {
	for i := range n {
		a := &logFile{v: version{Key: fmt.Sprintf("%slogs/%d", l.prefix, i), Number: 1}}
		l.logs = append(l.logs, a)
		chance := rand.New(rand.NewPCG(rng.Uint64(), 0))
		l.programs = append(l.programs, func() {
			for l.goesOn() {
				if err := a.session(l.at, chance, !l.durable); err != nil {
					l.meet(err)
					return
				}
				l.rest(time.Duration(chance.IntN(20)) * time.Millisecond)
			}
		})
	}
}

// movers adds n programs that make, rename and remove files and directories.
func (l *load) movers(rng *rand.Rand, n int) {
	for i := range n {
		m := newMoved(fmt.Sprint(l.prefix, "moved", i))
		l.moves = append(l.moves, m)
		chance := rand.New(rand.NewPCG(rng.Uint64(), 0))
		l.programs = append(l.programs, func() {
			for k := 1; l.goesOn(); k++ {
				if err := m.once(l.at, k, chance); err != nil {
					l.meet(err)
					return
				}
				l.rest(time.Duration(chance.IntN(20)) * time.Millisecond)
			}
		})
	}
}

// start lets the programs run.
func (l *load) start() {
	dirs := []string{l.prefix + "logs"}
	for _, m := range l.moves {
		dirs = append(dirs, m.dir)
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(filepath.Join(l.at, dir), 0o755); err != nil {
			l.t.Fatal(err)
		}
	}
	for _, program := range l.programs {
		l.running.Go(program)
	}
}

// end tells the programs to end and waits until they have.
func (l *load) end() {
	l.t.Helper()
	close(l.over)
	l.ended()
}

// ended waits until the programs have ended, of which the mount is gone or who were told.
func (l *load) ended() {
	l.t.Helper()
	l.running.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := errors.Join(l.mu.met...); err != nil {
		l.t.Error(err)
	}
}

// remove removes all that the programs have written, through the mount.
func (l *load) remove() {
	l.t.Helper()
	dirs, err := filepath.Glob(filepath.Join(l.at, l.prefix+"*"))
	if err != nil || l.prefix == "" {
		l.t.Fatalf("names that begin with %q: %v", l.prefix, err)
	}
	for _, dir := range dirs {
		if err := os.RemoveAll(dir); err != nil {
			l.t.Error(err)
		}
	}
}

// meet notes an error that must not be: that bytes are wrong, or, where nothing may be refused,
// any as long as the mount is there.
func (l *load) meet(err error) {
	if !errors.Is(err, errNotWritten) && (!l.steady || errors.Is(err, unix.ENOSPC) || !l.mounted()) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.met = append(l.mu.met, err)
}

// goesOn reports whether programs are to go on.
func (l *load) goesOn() bool {
	select {
	case <-l.over:
		return false
	default:
		return l.mounted()
	}
}

// mounted reports whether somebody serves the mount.
func (l *load) mounted() bool {
	var st unix.Statfs_t
	return unix.Statfs(l.at, &st) == nil && st.Type == unix.FUSE_SUPER_MAGIC
}

// rest waits, less long if the programs are to end.
func (l *load) rest(d time.Duration) {
	select {
	case <-l.over:
	case <-time.After(d):
	}
}

// train writes checkpoints: shards, some of them synced, and then a file that names them
// and takes the place of the one before.
func (l *load) train(trainer string) {
	for step := 1; l.goesOn(); step++ {
		if l.checkpoint(trainer, step) && l.promised.rested != nil {
			select {
			case <-l.promised.rested:
			case <-l.over:
			}
		}
		// A trainer trains for a while, in which the disk takes what was closed.
		l.rest(200 * time.Millisecond)
	}
}

// checkpoint writes one and reports whether all of it was accepted.
func (l *load) checkpoint(trainer string, step int) bool {
	if err := os.MkdirAll(filepath.Join(l.at, trainer, fmt.Sprint("step-", step)), 0o755); err != nil {
		l.meet(err)
		return false
	}
	for i, v := range shardsOf(trainer, step) {
		synced := (step+i)%3 == 0
		if err := writeDurably(filepath.Join(l.at, v.Key), v.content(), synced); err != nil {
			l.meet(err)
			return false
		}
		l.promised.wrote(v, synced || !l.durable)
	}
	name := filepath.Join(l.at, trainer, "latest")
	err := writeDurably(name+".tmp", fmt.Appendf(nil, "step-%d", step), step%2 == 0)
	if err == nil {
		err = os.Rename(name+".tmp", name)
	}
	if err != nil {
		l.meet(err)
		return false
	}
	l.promised.renamed(trainer, step, !l.durable)
	return true
}

// writeDurably writes a file.
func writeDurably(path string, content []byte, sync bool) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil && sync {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// summary says what the programs have done.
func (l *load) summary() string {
	safe, _ := l.promised.kept()
	edits, moves := 0, 0
	for _, e := range l.edits {
		edits += len(e.edits)
	}
	for _, m := range l.moves {
		moves += m.done
	}
	var logged int64
	for _, a := range l.logs {
		logged += a.v.Size
	}
	return fmt.Sprintf("%d shards, %d edits of %d objects, %d KiB of logs, %d moves", len(safe), edits, len(l.edits), logged>>10, moves)
}

// acknowledged is how much is safe, as a number that grows with it.
func (l *load) acknowledged() int64 {
	safe, _ := l.promised.kept()
	n := int64(len(safe))
	for _, e := range l.edits {
		n += int64(e.acknowledged())
	}
	for _, a := range l.logs {
		n += a.acknowledged()
	}
	return n
}

// lacks reports whether the bucket lacks something that is safe.
func (l *load) lacks() bool { return l.snapshot().lacks(l.w) }

// published fails unless the bucket has all that is safe, and nothing of what was moved or
// removed where it was before.
func (l *load) published(when string) {
	l.t.Helper()
	safe, latest := l.promised.kept()
	for _, v := range safe {
		l.w.keeps(when, v)
	}
	named := l.w.ordered(when)
	for trainer, step := range latest {
		if named[trainer] < step {
			l.t.Errorf("%s: %s/latest names step %d, and step %d was renamed", when, trainer, named[trainer], step)
		}
	}
	for _, e := range l.edits {
		if b, err := l.w.object(e.base.Key); err != nil {
			l.t.Errorf("%s: %s: %v", when, e.base.Key, err)
		} else if err := e.check(b, e.safe); err != nil {
			l.t.Errorf("%s: %v", when, err)
		}
	}
	for _, a := range l.logs {
		content, err := l.w.object(a.v.Key)
		if err := a.check(content, err, a.safe, false); err != nil {
			l.t.Errorf("%s: %v", when, err)
		}
	}
	for _, m := range l.moves {
		if err := m.check(l.w); err != nil {
			l.t.Errorf("%s: %v", when, err)
		}
	}
}

// object returns the content of an object, nil if there is none.
func (w *world) object(key string) ([]byte, error) {
	var b bytes.Buffer
	err := w.Server.Get(w.Bucket, key, &b)
	return b.Bytes(), err
}
