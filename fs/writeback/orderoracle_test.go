package writeback

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pailfs/pailfs/fs/writeback/internal/order"
)

// The order in which objects appear, as fs/SEMANTICS.md promises it, in a model that knows nothing of
// how it is kept: it is told what programs do and what the bucket becomes, and says whether that is
// allowed.

// change is what a name meant from some moment on.
type change struct {
	// at is the moment, when the time.
	at   int
	when time.Time
	path string
	// number is that of the content, 0 if the name is gone.
	number int
	// replaces says that an object was to be overwritten, replaced, moved or removed; renamed that
	// this was a renaming, to the name to where this one is gone.
	replaces, renamed bool
	to                string
	// again says that the file that had the name was written again in place.
	again bool
	small bool
}

// orderOracle judges each state of the bucket.
type orderOracle struct {
	*testing.T
	sync.Mutex
	log     []string
	now     int
	changes map[string][]change
	// there is the moment as of which the bucket has what a name meant, has the number of what it
	// has there, 0 for nothing, since when that came.
	// answered is the moment before that where the answer to the last request may be lost.
	there    map[string]int
	answered map[string]int
	has      map[string]int
	since    map[string]time.Time
	// openings has when a name was opened to be written last, and when that was closed; refusals
	// the same of times in which the store refuses it.
	openings map[string]opening
	refusals map[string]opening
	// excuses has how often each was needed, without is one that is not accepted.
	excuses map[string]int
	without string
}

type opening struct {
	truncated  bool
	began, end time.Time
}

// lasts reports whether o was under way since then, or ended a while ago: what began meanwhile may
// come to its end.
func (o opening) lasts(a while) bool {
	return !o.began.IsZero() && (o.end.IsZero() || time.Since(o.end) < time.Duration(a))
}

// while is how long a request may take, with all that is asked and tried before it.
type while time.Duration

const (
	oneRequest = while(time.Minute)
	// retriesLast is how long a request of which the answer was lost may be tried again.
	retriesLast = while(5 * time.Minute)
	// refusalsLast is how long something may be known as refused: it is tried again every five minutes.
	refusalsLast = while(6 * time.Minute)
)

func newOrderOracle(t *testing.T) *orderOracle {
	return &orderOracle{
		T: t, without: os.Getenv("PAILFS_ORDER_WITHOUT"), changes: make(map[string][]change), there: make(map[string]int), answered: make(map[string]int), has: make(map[string]int), since: make(map[string]time.Time),
		openings: make(map[string]opening), refusals: make(map[string]opening), excuses: make(map[string]int),
	}
}

func (o *orderOracle) say(format string, args ...any) {
	o.log = append(o.log, fmt.Sprintf("%8.3f %3d ", time.Since(bubbleStart).Seconds(), o.now)+fmt.Sprintf(format, args...))
}

// bubbleStart is when the time of a bubble begins.
var bubbleStart = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// note notes changes of one moment.
func (o *orderOracle) note(how string, changes ...change) {
	o.Lock()
	defer o.Unlock()
	o.now++
	o.say("%s", how)
	for _, c := range changes {
		c.at, c.when = o.now, time.Now()
		c.replaces = c.replaces || c.number == 0 || o.has[c.path] != 0
		o.changes[c.path] = append(o.changes[c.path], c)
	}
}

// opened notes that path is open to be written, or no longer.
func (o *orderOracle) opened(path string, truncated, open bool) {
	o.Lock()
	defer o.Unlock()
	x := opening{truncated: truncated, began: time.Now()}
	if !open {
		x = o.openings[path]
		x.end = time.Now()
	}
	o.openings[path] = x
	o.say("open %v: %s truncated %v", open, path, truncated)
}

// appeared is told of every object that appears, under the lock of the store.
func (o *orderOracle) appeared(key string, content []byte) {
	number := 0
	if _, err := fmt.Sscanf(string(content), "#%d ", &number); err != nil {
		return // a directory
	}
	o.became(strings.TrimPrefix(key, "p/"), number)
}

// gone is told of every object that is removed.
func (o *orderOracle) gone(key string, _ []byte) {
	if !strings.HasSuffix(key, "/") {
		o.became(strings.TrimPrefix(key, "p/"), 0)
	}
}

// became notes what the bucket has at path now: the first change since what it had that came
// to that, if there are several.
func (o *orderOracle) became(path string, number int) {
	o.Lock()
	defer o.Unlock()
	o.say("  %s is #%d in the bucket", path, number)
	var found change
	for _, c := range o.changes[path] {
		if c.number == number && (found.at == 0 || found.at <= o.there[path]) {
			found = c
		}
	}
	if found.at == 0 {
		o.fault("%s was never #%d", path, number)
		return
	}
	o.judge(found)
	o.has[path] = number
}

func (o *orderOracle) fault(format string, args ...any) {
	o.Errorf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(o.log, "\n"))
}

// judge says whether c may be seen as things are.
func (o *orderOracle) judge(c change) {
	before := o.there[c.path]
	if c.at < before {
		o.fault("%s of moment %d replaces what came later", c.path, c.at)
	}
	if time.Since(o.since[c.path]) > time.Duration(retriesLast) {
		o.answered[c.path] = before
	}
	for path := range o.changes {
		q, changed := o.last(path, c.at)
		if path == c.path || !changed || !c.follows(q) || o.shows(q) || q.mayBeOvertakenBy(c) {
			continue
		}
		o.excuse(c, q, o.answered[c.path])
	}
	o.there[c.path], o.since[c.path] = c.at, time.Now()
}

// last returns what path came to mean last before a moment.
func (o *orderOracle) last(path string, at int) (c change, is bool) {
	for _, x := range o.changes[path] {
		if x.at >= at {
			break
		}
		c, is = x, true
	}
	return c, is
}

// shows reports whether the bucket has q, or what came after it.
func (o *orderOracle) shows(q change) bool {
	return o.there[q.path] >= q.at || o.has[q.path] == q.number
}

// follows reports whether c appears after q, which came before it: q is beside it or below, or c
// replaces something and lies under the same top-level directory.
func (c change) follows(q change) bool {
	dir := order.Parent("/" + c.path)
	if strings.HasPrefix("/"+q.path, dir+"/") {
		return true
	}
	top, _, below := strings.Cut(c.path, "/")
	return c.replaces && (!below || strings.HasPrefix(q.path, top+"/"))
}

// mayBeOvertakenBy reports whether both are new small files of one second, or removals of one
// second of which the first is of no name above.
func (c change) mayBeOvertakenBy(by change) bool {
	if by.when.Sub(c.when) > time.Second {
		return false
	}
	if by.number == 0 || c.number == 0 {
		above := order.Parent("/"+c.path) != order.Parent("/"+by.path) && strings.HasPrefix("/"+by.path, order.Parent("/"+c.path)+"/")
		return by.number == 0 && c.number == 0 && !above
	}
	return by.small && c.small && !by.replaces && !c.replaces
}

// excuse says that c is seen and q is not, unless there is an excuse for that.
func (o *orderOracle) excuse(c, q change, before int) {
	if q.number == 0 && q.renamed {
		_, _, moved := o.whither(q.path, o.has[q.path])
		q.at = max(q.at, moved)
	}
	for _, x := range orderExcuses {
		if x.name != o.without && x.allows(o, c, q, before) {
			o.excuses[x.name]++
			return
		}
	}
	o.fault("%s of moment %d is seen, and %s of %d is not", c.path, c.at, q.path, q.at)
}

// orderExcuse is something that is allowed, or done, although the order says otherwise. DESIGN.md
// lists them, each with a seed: PAILFS_ORDER_WITHOUT leaves one out.
type orderExcuse struct {
	name string
	// allows reports whether c may be seen before q; before is the moment as of which the name
	// of c was seen before, and the answer was heard.
	allows func(o *orderOracle, c, q change, before int) bool
}

var orderExcuses = []orderExcuse{
	// fs/SEMANTICS.md: not where it is moved away or removed.
	{"moved away or removed", func(o *orderOracle, _, q change, _ int) bool {
		return q.number != 0 && slices.ContainsFunc(o.changes[q.path], func(x change) bool { return x.at > q.at && x.number == 0 })
	}},
	// A removal that is dropped, for the name means something again.
	{"made again", func(o *orderOracle, _, q change, _ int) bool {
		return q.number == 0 && slices.ContainsFunc(o.changes[q.path], func(x change) bool { return x.at > q.at && x.number != 0 })
	}},
	// Limits: what is edited in place without O_TRUNC holds back nothing meanwhile.
	{"edited in place", func(o *orderOracle, _, q change, _ int) bool {
		x := o.openings[q.path]
		return q.number != 0 && !x.truncated && x.lasts(oneRequest) && !x.began.Before(q.when)
	}},
	// What replaces something elsewhere passes a file that is opened with O_TRUNC again.
	{"opened with O_TRUNC elsewhere", func(o *orderOracle, c, q change, _ int) bool {
		x := o.openings[q.path]
		return q.number != 0 && x.truncated && x.lasts(oneRequest) && !x.began.Before(q.when) && c.elsewhere(q)
	}},
	// What is refused holds back only what is beside it or above, which holds back nothing elsewhere
	// but removals below, which in turn do not either.
	{"refused elsewhere", func(o *orderOracle, c, q change, _ int) bool {
		return c.elsewhere(q) && (o.refusals[q.path].lasts(refusalsLast) || o.behindRefused(q) || q.number == 0 && o.belowStuck(q))
	}},
	// The old name stays until the new one is there, and holds back nothing meanwhile.
	// Each further renaming puts its removal off.
	{"the old name stays", func(o *orderOracle, c, q change, _ int) bool {
		path, at, _ := o.whither(q.path, o.has[q.path])
		if q.number != 0 || path == q.path {
			return false
		}
		if q.at >= c.at {
			return true
		}
		// So it is where the new one is behind what is refused, and was when it was moved on or removed.
		if fresh := cmp.Or(path, q.to); fresh != "" && o.behindRefused(change{at: q.at, path: fresh}) {
			return true
		}
		if path == "" {
			return false
		}
		return o.there[path] < at || time.Since(o.since[path]) < time.Duration(oneRequest) || o.refusals[path].lasts(refusalsLast)
	}},
	// fs/SEMANTICS.md: what is written again in place before it was published goes before what waits for it.
	{"written again in place", func(o *orderOracle, c, q change, before int) bool {
		first := o.chain(c, before)
		// What one renaming moves has one place.
		return q.at >= first && o.mayWait(c, q, first)
	}},
}

// behindRefused reports whether something that was closed before q beside it or below is refused.
func (o *orderOracle) behindRefused(q change) bool {
	for path, refusal := range o.refusals {
		before := func(x change) bool { return x.at < q.at && !q.elsewhere(x) }
		if refusal.lasts(refusalsLast) && slices.ContainsFunc(o.changes[path], before) {
			return true
		}
	}
	return false
}

// belowStuck reports whether something that was replaced or removed before q in a directory above
// is behind what is refused.
func (o *orderOracle) belowStuck(q change) bool {
	for _, changes := range o.changes {
		if slices.ContainsFunc(changes, func(x change) bool {
			return x.at < q.at && x.replaces && !x.elsewhere(q) && o.behindRefused(x)
		}) {
			return true
		}
	}
	return false
}

// elsewhere reports whether q is neither beside c nor below it.
func (c change) elsewhere(q change) bool {
	return !strings.HasPrefix("/"+q.path, order.Parent("/"+c.path)+"/")
}

// whither returns where the file is that was seen at path with that content, and when that was
// changed last; "" if it has no name any more. It was moved last at moved.
func (o *orderOracle) whither(path string, number int) (now string, at, moved int) {
	for _, c := range o.changes[path] {
		if c.number == number && c.at <= o.there[path] {
			at = c.at
		}
	}
	for i := 0; at != 0 && i < len(o.changes[path]); i++ {
		switch c := o.changes[path][i]; {
		case c.at <= at:
		case c.number == 0 && c.renamed:
			// It is there since the moment before.
			path, at, moved, i = c.to, c.at-1, c.at, -1
		case c.again:
			at = c.at
		default:
			return "", 0, moved
		}
	}
	return path, at, moved
}

// chain returns the moment at which the file of c was committed first of all that was not
// seen before c.
func (o *orderOracle) chain(c change, before int) int {
	first := c.at
	for _, x := range slices.Backward(o.changes[c.path]) {
		if x.at > c.at {
			continue
		}
		if x.at <= before {
			break
		}
		first = x.at
		if !x.again {
			break
		}
	}
	return first
}

// mayWait reports whether q, which was changed after first, may wait for what c was then, or
// for what does.
func (o *orderOracle) mayWait(c, q change, first int) bool {
	marked := make(map[string]bool)
	order.MarkAbove(marked, strings.TrimPrefix(order.Parent("/"+c.path), "/"))
	for again := true; again; {
		again = false
		for path, all := range o.changes {
			dir := strings.TrimPrefix(order.Parent("/"+path), "/")
			for _, x := range all {
				if x.at > first && x.at < c.at && !marked[dir] && o.mayReplace(x) {
					order.MarkAbove(marked, dir)
					again = true
				}
			}
		}
	}
	return o.mayReplace(q) || marked[strings.TrimPrefix(order.Parent("/"+q.path), "/")]
}

// mayReplace reports whether c replaces something, or what was committed before it may have been
// under way when the file was written again: newer content keeps the place.
func (o *orderOracle) mayReplace(c change) bool {
	for _, x := range o.changes[c.path] {
		if x.at > c.at {
			return c.replaces || c.again || x.again
		}
	}
	return c.replaces || c.again
}
