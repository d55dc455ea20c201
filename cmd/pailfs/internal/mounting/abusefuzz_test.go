//go:build !race

package mounting

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

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
}

type anyParams map[string]any

// fuzzedMethods are those that PROTOCOL.md has, with what makes their parameters. Those
// that end the mount, or what it does, are called by users who may not.
func fuzzedMethods() map[string]func(f *fuzzed) anyParams {
	none := func(*fuzzed) anyParams { return nil }
	paths := func(f *fuzzed) anyParams { return f.stream(f.paths()) }
	return map[string]func(f *fuzzed) anyParams{
		"hello":  none,
		"status": none,
		"umount": none,
		"drain":  none,
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

// step makes one call.
func (f *fuzzed) step(c *control.Client, dir *os.File, methods map[string]func(*fuzzed) anyParams, names []string) error {
	method := pick(f.rng, names)
	if f.rng.IntN(2) == 0 {
		method = pick(f.rng, usual)
	}
	params := methods[method](f)
	if f.rng.IntN(20) == 0 {
		return abandon(dir, method, params)
	}
	var result map[string]any
	err := calls(c, method, params, &result)
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

// abandon begins a call and never asks after it.
func abandon(dir *os.File, method string, params anyParams) error {
	document := anyParams{"method": method}
	if params != nil {
		document["params"] = params
	}
	payload, err := json.Marshal(document)
	if err != nil {
		return err
	}
	const header = 32
	buf := make([]byte, control.BufferSize)
	copy(buf, "PAIL\x01\x01")
	length := copy(buf[header:], payload)
	buf[8], buf[9] = byte(length), byte(length>>8)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), uintptr(control.Command), uintptr(unsafe.Pointer(&buf[0])))
	runtime.KeepAlive(buf)
	if errno != 0 && errno != unix.EINTR {
		return fmt.Errorf("%s, abandoned: %w", method, errno)
	}
	return nil
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

// TestNoCallOfManyUsersTakesMoreThanTheBound makes random calls of every method as a hundred
// users, and compares the daemon's memory with its bound. PAILFS_ABUSE_CALLS=300000 is its full
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
	abusers(t, m.at, fuzzUsers, func(i int, c *control.Client) {
		f := &fuzzed{rng: rand.New(rand.NewPCG(uint64(seed), uint64(i)))}
		dir, err := os.Open(m.at)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = dir.Close() }()
		for range total / fuzzUsers {
			if err := f.step(c, dir, methods, names); err != nil && failures.Add(1) < 10 {
				t.Errorf("seed %d, user %d: %v", seed, firstAbuser+i, err)
			}
		}
	})
	m.sampler(t, 0)
	m.readAll(t)
	m.bounded(t)
}
