package writeback

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pailfs/pailfs/oss"
)

// calendar is a state in which files are closed, moved and published, and what the
// bucket has of them.
type calendar struct {
	*testing.T
	st   *state
	at   int64
	log  []string
	next fileID
	// closed is when something was committed at a path, published the commit that the
	// bucket has.
	closed    map[string][]int64
	published map[string]int64
	// commits is the commit of the content of each file.
	commits map[fileID]int64
}

func newCalendar(t *testing.T) *calendar {
	return &calendar{T: t, st: newState(), closed: make(map[string][]int64), published: make(map[string]int64), commits: make(map[fileID]int64)}
}

func (c *calendar) place(path string) place {
	i := strings.LastIndexByte(path, '/')
	return place{Dir: path[:max(i, 0)], Name: path[i+1:], Key: "p/" + path, Base: absent("p/" + path)}
}

// write makes or rewrites a file, and closes it if done.
func (c *calendar) write(path string, done bool) {
	p := c.place(path)
	n, ok := c.st.lookup(p.Dir, p.Name)
	id := n.File
	if !ok || n.Kind == nameGone {
		c.next++
		id = c.next
		c.st.apply(&createdRecord{File: id, At: p})
	}
	if !done {
		return
	}
	c.at++
	c.commits[id], c.closed[path] = c.at, append(c.closed[path], c.at)
	c.log = append(c.log, fmt.Sprintf("%d close %s", c.at, path))
	c.st.apply(&closedRecord{File: id, Gen: c.st.Files[id].Gen + 1, At: c.at * int64(time.Minute), Size: 1 << 30})
}

// move renames a file over whatever is there.
func (c *calendar) move(from, to string) {
	p := c.place(from)
	n, ok := c.st.lookup(p.Dir, p.Name)
	if !ok || n.Kind != nameFile || from == to {
		return
	}
	c.at++
	c.log = append(c.log, fmt.Sprintf("%d mv %s %s", c.at, from, to))
	c.st.apply(&renamedRecord{File: n.File, To: c.place(to), Time: c.at * int64(time.Minute)})
	if _, committed := c.closed[from]; committed {
		c.closed[to], c.commits[n.File] = append(c.closed[to], c.at), c.at
	}
	delete(c.closed, from)
}

// ready returns what may be published now. open are files that are not committed.
func (c *calendar) ready() []*operation {
	var ready []*operation
	for _, v := range c.st.queue.scan(func(op *operation) standing {
		f := c.st.Files[op.File]
		return standing{failing: op.Kind == opPut && f.Gen == 0}
	}, func(*operation) bool { return false }) {
		if f := c.st.Files[v.op.File]; v.ready && !v.op.Begun && (v.op.Kind != opPut || f.Gen > 0) {
			ready = append(ready, v.op)
		}
	}
	return ready
}

// begin and end publish op.
func (c *calendar) begin(op *operation) {
	if op.Kind == opPut {
		c.log = append(c.log, "  begin "+join(op.Dir, op.Name))
	}
	gen := generation(0)
	if f := c.st.Files[op.File]; f != nil {
		gen = f.Gen
	}
	c.st.apply(&begunRecord{Op: op.ID, Gen: gen, Intent: intent{Kind: op.Kind}})
}

func (c *calendar) end(op *operation) {
	path := join(op.Dir, op.Name)
	obj := absent(op.Key)
	if op.Kind == opPut {
		c.log = append(c.log, "  publish "+path)
		c.published[path] = c.commits[op.File]
		obj = oss.Object{Key: op.Key, ETag: fmt.Sprint(c.at, op.ID)}
	}
	c.st.apply(&doneRecord{Op: op.ID, Object: obj})
}

func (c *calendar) publish(op *operation) { c.begin(op); c.end(op) }

func (c *calendar) drain() {
	for len(c.st.Ops) > 0 {
		ready := c.ready()
		if len(ready) == 0 {
			c.Fatalf("nothing may be published of %d\n%s", len(c.st.Ops), strings.Join(c.log, "\n"))
		}
		c.publish(ready[0])
	}
}

// names returns the paths that may be published now.
func (c *calendar) names() string {
	var all []string
	for _, op := range c.ready() {
		all = append(all, join(op.Dir, op.Name))
	}
	return strings.Join(all, " ")
}

func TestWhatReplacesAShardAppearsBeforeLatest(t *testing.T) {
	type step = func(c *calendar)
	write := func(path string) step { return func(c *calendar) { c.write(path, true) } }
	open := func(path string) step { return func(c *calendar) { c.write(path, false) } }
	move := func(from, to string) step { return func(c *calendar) { c.move(from, to) } }
	done := func(c *calendar) { c.drain() }
	fails := func(path string) step {
		return func(c *calendar) {
			for _, op := range c.ready() {
				if join(op.Dir, op.Name) == path {
					c.begin(op)
				}
			}
		}
	}
	undone := func(c *calendar) { c.st.apply(&bootRecord{ID: "next"}) }
	for name, row := range map[string]struct {
		steps []step
		want  string
	}{
		"moved over it after latest":        {[]step{write("s/a"), write("latest"), write("x/b"), move("x/b", "s/a")}, "s/a"},
		"moved over it before latest":       {[]step{write("s/a"), write("x/b"), move("x/b", "s/a"), write("latest")}, "s/a"},
		"moved over it open, after latest":  {[]step{write("s/a"), write("latest"), open("x/b"), move("x/b", "s/a")}, ""},
		"moved over it open, before latest": {[]step{write("s/a"), open("x/b"), move("x/b", "s/a"), write("latest")}, ""},
		"moved over it open, then closed":   {[]step{write("s/a"), write("latest"), open("x/b"), move("x/b", "s/a"), write("s/a")}, "s/a"},
		"moved over it twice":               {[]step{write("s/a"), write("latest"), write("x/b"), move("x/b", "s/a"), write("x/c"), move("x/c", "s/a")}, "s/a"},
		"renamed after latest":              {[]step{write("s/a"), write("latest"), move("s/a", "s/b")}, "s/b"},
		"rewritten after it was moved":      {[]step{write("s/a"), write("latest"), write("x/b"), move("x/b", "s/a"), write("s/a")}, "s/a"},
		"rewritten while it fails":          {[]step{write("s/a"), write("latest"), fails("s/a"), write("s/a"), undone}, "s/a"},
		"replaced while it fails":           {[]step{write("s/a"), write("latest"), fails("s/a"), write("x/b"), move("x/b", "s/a"), undone}, "s/a"},
		// The next checkpoint, while the latest of the one before waits.
		"latest rewritten after a shard that is replaced": {[]step{write("s/a"), done, write("latest"), write("s/a"), write("latest")}, "s/a"},
		"latest moved after a shard that is replaced":     {[]step{write("s/a"), done, write("latest"), write("s/a"), write("t"), move("t", "latest")}, "s/a"},
		"latest moved after a shard beside it":            {[]step{write("s/a"), done, write("s/latest"), write("s/a"), write("s/t"), move("s/t", "s/latest")}, "s/a"},
		"latest moved, and a log above it":                {[]step{write("d/s/a"), done, write("d/latest"), write("log"), write("d/s/a"), write("d/t"), move("d/t", "d/latest")}, "d/s/a"},
		"a mode given after it was moved":                 {[]step{write("s/a"), write("x/b"), move("x/b", "s/a"), write("s/latest"), write("s/a")}, "s/a"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCalendar(t)
			for _, do := range row.steps {
				do(c)
			}
			if got := c.names(); got != row.want {
				t.Errorf("may be published: %q, want %q\n%s", got, row.want, strings.Join(c.log, "\n"))
			}
		})
	}
}

// Whatever is rewritten and moved, latest never precedes a shard that was closed before
// it, and nothing waits for itself.
func TestOrderHoldsWhateverIsRewritten(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 0))
		c := newCalendar(t)
		shards := []string{"d/s/a", "d/s/b", "d/s/sub/c"}
		others := []string{"log", "d/t", "d/s/t", "o/x", "o/y"}
		latest := func() {
			if r.IntN(2) == 0 {
				c.write("d/latest", true)
				return
			}
			c.write("d/latest.new", true)
			c.move("d/latest.new", "d/latest")
		}
		check := func(op *operation) {
			if join(op.Dir, op.Name) != "d/latest" {
				return
			}
			last := slices.Max(c.closed["d/latest"])
			for _, s := range shards {
				for _, at := range c.closed[s] {
					if at < last && c.published[s] < at {
						t.Fatalf("seed %d: latest of %d goes before %s of %d\n%s", seed, last, s, at, strings.Join(c.log, "\n"))
					}
				}
			}
		}
		for range 40 {
			switch r.IntN(8) {
			case 0, 1:
				c.write(shards[r.IntN(len(shards))], true)
			case 2:
				from := others[r.IntN(len(others))]
				c.write(from, true)
				c.move(from, shards[r.IntN(len(shards))])
			case 3:
				latest()
			case 4, 5:
				c.write(others[r.IntN(len(others))], true)
			case 6:
				c.move(others[r.IntN(len(others))], others[r.IntN(len(others))])
			default:
				if ready := c.ready(); len(ready) > 0 {
					op := ready[r.IntN(len(ready))]
					check(op)
					c.publish(op)
				}
			}
		}
		for len(c.st.Ops) > 0 {
			ready := c.ready()
			if len(ready) == 0 {
				t.Fatalf("seed %d: nothing may be published of %d\n%s", seed, len(c.st.Ops), strings.Join(c.log, "\n"))
			}
			op := ready[r.IntN(len(ready))]
			check(op)
			c.publish(op)
		}
	}
}
