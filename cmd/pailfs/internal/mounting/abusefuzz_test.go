//go:build !race

package mounting

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/pailfs/pailfs/prefetch/control"
)

const (
	// fuzzCallsEnv is how many calls the fuzzer makes, fuzzSeedEnv with which seed it begins.
	fuzzCallsEnv = "PAILFS_ABUSE_CALLS"
	fuzzSeedEnv  = "PAILFS_ABUSE_SEED"
	fuzzUsers    = 100
)

// fuzzed makes random calls as one user, and remembers what it was given.
type fuzzed struct {
	rng            *rand.Rand
	sessions, jobs []string
	// hands are the open descriptions that it has, cursors those of answers that it did not
	// fetch to their end.
	hands   []hand
	cursors [][16]byte
}

type anyParams map[string]any

// fuzzedMethods are those that prefetch/control/PROTOCOL.md has, with what makes their parameters. Those
// that end the mount, or what it does, are called by users who may not.
func fuzzedMethods() map[string]func(f *fuzzed) anyParams {
	none := func(*fuzzed) anyParams { return nil }
	paths := func(f *fuzzed) anyParams { return f.stream(f.paths()) }
	return map[string]func(f *fuzzed) anyParams{
		"hello":  none,
		"status": none,
		"umount": none,
		"drain":  none,
		"page":   none,
		"flush":  func(f *fuzzed) anyParams { return anyParams{"path": f.path()} },
		"loader.open": func(f *fuzzed) anyParams {
			p := anyParams{
				"worker": f.rng.IntN(50), "buffer": f.some(1, 1_000_000), "task": f.text(1000), "instance": f.text(1000),
				"lease_seconds": f.some(0, 604_800), "drop_on_release": f.rng.IntN(2) == 0,
			}
			if f.rng.IntN(8) == 0 {
				p["persistence"] = f.path()
			}
			return p
		},
		"loader.close":   func(f *fuzzed) anyParams { return anyParams{"session": f.session(), "keep": f.rng.IntN(2) == 0} },
		"loader.renew":   func(f *fuzzed) anyParams { return anyParams{"session": f.session()} },
		"loader.quota":   func(f *fuzzed) anyParams { return anyParams{"session": f.session(), "index": f.index()} },
		"loader.preload": func(f *fuzzed) anyParams { return f.with(paths(f), "wait", f.rng.IntN(20) == 0) },
		"loader.active":  paths,
		"loader.release": paths,
		"loader.wait":    func(f *fuzzed) anyParams { return f.with(paths(f), "timeout_ms", f.rng.IntN(50)) },
		"loader.status": func(f *fuzzed) anyParams {
			if f.rng.IntN(2) == 0 {
				return anyParams{"session": f.session()}
			}
			return paths(f)
		},
		"warm.open":     func(f *fuzzed) anyParams { return anyParams{"each": f.rng.IntN(2) == 0} },
		"warm.add":      func(f *fuzzed) anyParams { return f.with(f.paths(), "job", f.job(), "last", f.rng.IntN(2) == 0) },
		"warm.progress": func(f *fuzzed) anyParams { return anyParams{"job": f.job(), "after": f.rng.IntN(3) * 100} },
		"warm.close":    func(f *fuzzed) anyParams { return anyParams{"job": f.job()} },
		"accept":        func(f *fuzzed) anyParams { return anyParams{"path": f.path(), "take": f.rng.IntN(2) == 0} },
		"evict":         func(f *fuzzed) anyParams { return f.paths() },
		"measure":       func(f *fuzzed) anyParams { return f.paths() },
	}
}

// usual are the methods with which most is kept.
var usual = []string{"loader.open", "loader.preload", "loader.preload", "loader.active", "loader.wait", "warm.open", "warm.add", "measure"}

// some returns a number from low to high, small ones as likely as large ones.
func (f *fuzzed) some(low, high int) int {
	n := high
	for range f.rng.IntN(20) {
		n /= 2
	}
	return max(low, n)
}

func (f *fuzzed) text(most int) string {
	return strings.Repeat("t", f.rng.IntN(2)*f.rng.IntN(most)) + strconv.Itoa(f.rng.IntN(100))
}

func (f *fuzzed) index() int { return f.rng.IntN(f.some(1, 1<<30)) }

func (f *fuzzed) path() string {
	switch f.rng.IntN(6) {
	case 0:
		return "train"
	case 1:
		return fmt.Sprintf("train/%03d.jpg", f.rng.IntN(80))
	case 2:
		return strings.Repeat("d/", f.rng.IntN(500)) + strconv.Itoa(f.rng.IntN(1000))
	case 3:
		return strings.Repeat("n", f.rng.IntN(1000))
	default:
		return strconv.FormatInt(f.rng.Int64N(1e6), 36)
	}
}

// paths returns as many paths as fit, or few, with or without a base.
func (f *fuzzed) paths() anyParams {
	p := anyParams{}
	room := control.MaxPayload - 500
	if f.rng.IntN(2) == 0 {
		base := strings.Repeat("b/", f.rng.IntN(f.some(2, 5000))) + "x/"
		p["base"] = base
		room -= len(base)
	}
	names := []string{}
	for most := f.some(1, 3000); len(names) < most; {
		name := f.path()
		if room -= len(name) + 3; room < 0 {
			break
		}
		names = append(names, name)
	}
	p["paths"] = names
	return p
}

func (f *fuzzed) with(p anyParams, pairs ...any) anyParams {
	for pair := range slices.Chunk(pairs, 2) {
		p[pair[0].(string)] = pair[1]
	}
	return p
}

func (f *fuzzed) stream(p anyParams) anyParams {
	return f.with(p, "session", f.session(), "index", f.index(), "seq", f.rng.IntN(3))
}

func pick(rng *rand.Rand, all []string) string {
	if len(all) == 0 {
		return "none"
	}
	return all[rng.IntN(len(all))]
}

func (f *fuzzed) session() string { return pick(f.rng, f.sessions) }
func (f *fuzzed) job() string     { return pick(f.rng, f.jobs) }

// hand is an open description of the mount, by which sessions are used.
type hand struct {
	client *control.Client
	dir    *os.File
}

func takeHand(at string) (h hand, err error) {
	if h.dir, err = os.Open(at); err != nil {
		return h, err
	}
	if h.client, err = control.Dial(at); err != nil {
		return h, errors.Join(err, h.dir.Close())
	}
	return h, nil
}

func (h hand) close() error { return errors.Join(h.client.Close(), h.dir.Close()) }

// mostHands is how many open descriptions a user has at once. They stay open between its
// calls, and with them its sessions.
const mostHands = 3

// shake opens another description, or closes one, whose sessions may lose their client.
func (f *fuzzed) shake(at string) error {
	switch k := f.rng.IntN(10 * mostHands); {
	case len(f.hands) == 0 || k < mostHands && len(f.hands) < mostHands:
		h, err := takeHand(at)
		if err == nil {
			f.hands = append(f.hands, h)
		}
		return err
	case k == mostHands && len(f.hands) > 1:
		h := f.hands[0]
		f.hands = f.hands[1:]
		return h.close()
	}
	return nil
}

// step makes one call.
func (f *fuzzed) step(methods map[string]func(*fuzzed) anyParams, names []string) error {
	method := pick(f.rng, names)
	if f.rng.IntN(2) == 0 {
		method = pick(f.rng, usual)
	}
	params := methods[method](f)
	h := f.hands[f.rng.IntN(len(f.hands))]
	if f.rng.IntN(4) == 0 {
		return f.raw(h.dir, method, params)
	}
	var result map[string]any
	err := calls(h.client, method, params, &result)
	if id, ok := result["session"].(string); ok {
		f.sessions = append(f.sessions, id)
	}
	if id, ok := result["job"].(string); ok {
		f.jobs = append(f.jobs, id)
	}
	if e := (*control.Error)(nil); err == nil || errors.As(err, &e) && e.Code != control.CodeInternal {
		return nil // it was told what it wanted, or why not
	}
	return fmt.Errorf("%s: %w", method, err)
}

// numberOf returns the number that a variable of the environment has, or another.
func numberOf(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}

// TestNoCallOfManyUsersTakesMoreThanTheBound makes random calls of every method, and sends
// frames that are wrong, as a hundred users whose sessions stay open, and compares the
// daemon's memory with its bound. PAILFS_ABUSE_CALLS=300000 is its full
// size.
func TestNoCallOfManyUsersTakesMoreThanTheBound(t *testing.T) {
	total, seed := numberOf(t, fuzzCallsEnv, 3000), numberOf(t, fuzzSeedEnv, 1)
	m := mountForAbuse(t, manyFiles)
	methods := fuzzedMethods()
	hello := dial(t, m.at).Hello()
	names := hello.Methods
	for _, name := range names {
		if methods[name] == nil {
			t.Errorf("nobody makes calls of %s here", name)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
	var failures atomic.Int64
	// What they hold stays open until the memory was looked at.
	all := make([]fuzzed, fuzzUsers)
	abusers(t, m.at, fuzzUsers, func(i int, _ *control.Client) {
		f := &all[i]
		f.rng = rand.New(rand.NewPCG(uint64(seed), uint64(i)))
		fail := func(err error) {
			if err != nil && failures.Add(1) < 10 {
				t.Errorf("seed %d, user %d: %v", seed, firstAbuser+i, err)
			}
		}
		for range total / fuzzUsers {
			if err := f.shake(m.at); err != nil {
				fail(err)
				break
			}
			fail(f.step(methods, names))
		}
	})
	m.sampler(t, 0)
	m.readAll(t)
	m.bounded(t)
	for i := range all {
		for _, h := range all[i].hands {
			if err := h.close(); err != nil {
				t.Error(err)
			}
		}
	}
}
