//go:build !race

package mounting

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/programtest"
	"github.com/pailfs/pailfs/prefetch/control"
	"github.com/pailfs/pailfs/prefetch/sessionstore"
)

const (
	// abuseTier is the memory tier of the mounts that are attacked, and abuseBound what
	// the daemon may have beside it, as cmd/pailfs/DESIGN.md promises.
	abuseTier  = 64 << 20
	abuseBound = 150_000_000
	// firstAbuser is the user id of the first of those who attack.
	firstAbuser = 70_000
)

// caller speaks to a mount as somebody else. The kernel tells a FUSE daemon the file
// system ids of the thread that calls.
type caller struct{ uid int }

// do runs f on a thread of this user's, with a client of the mount.
func (u caller) do(t *testing.T, dir string, f func(c *control.Client)) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		// The thread is not given back: it ends with the goroutine.
		runtime.LockOSThread()
		if err := errors.Join(unix.Setfsgid(u.uid), unix.Setfsuid(u.uid)); err != nil {
			done <- err
			return
		}
		c, err := control.Dial(dir)
		if err == nil {
			f(c)
			err = c.Close()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Errorf("user %d: %v", u.uid, err)
	}
}

// calls makes one call on the calling thread, where a context that can end would move
// it to another.
func calls(c *control.Client, method string, params, result any) error {
	return c.Call(context.Background(), method, params, result)
}

// abusers runs f as n users, all of them at once.
func abusers(t *testing.T, dir string, n int, f func(i int, c *control.Client)) {
	t.Helper()
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			caller{firstAbuser + i}.do(t, dir, func(c *control.Client) { f(i, c) })
		})
	}
	all.Wait()
}

// The files of a mount that is attacked: a tenth of what the memory tier holds, and more than that.
const (
	fewFiles  = 60
	manyFiles = abuseTier/100_000 + 50
)

// mountForAbuse mounts files for everybody and reads them.
func mountForAbuse(t *testing.T, files int, args ...string) *loaderMount {
	t.Helper()
	m := mountForLoader(t, files, append([]string{"--allow-other", "--cache-size", "1GiB", "--memory", "64MiB"}, args...)...)
	programtest.OpenUp(t, m.at)
	m.readAll(t)
	return m
}

func (m *loaderMount) readAll(t *testing.T) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(m.at, "train", "*"))
	if err != nil || len(names) == 0 {
		t.Fatalf("files of the mount: %v, %v", names, err)
	}
	for _, name := range names {
		if _, err := os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
}

// resident returns how much memory the daemon of the mount has now, and had at most.
func (m *loaderMount) resident(t *testing.T) (now, most int64) {
	t.Helper()
	pids := programtest.DaemonsOf(t, m.at)
	if len(pids) != 1 {
		t.Fatalf("the daemons of the mount are %v", pids)
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pids[0]))
	if err != nil {
		t.Fatal(err)
	}
	field := func(name string) int64 {
		_, rest, _ := strings.Cut(string(text), name+":")
		kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return kib << 10
	}
	return field("VmRSS"), field("VmHWM")
}

// bounded fails the test if the daemon ever had more memory than it may.
func (m *loaderMount) bounded(t *testing.T) {
	t.Helper()
	now, most := m.resident(t)
	t.Logf("resident: %d MB now, %d MB at most, may be %d MB", now/1e6, most/1e6, (abuseTier+abuseBound)/1_000_000)
	if most > abuseTier+abuseBound {
		t.Errorf("the daemon had %d MB at most, its bound is %d MB", most/1e6, (abuseTier+abuseBound)/1_000_000)
	}
}

// longBase is as long as makes of 16 KiB of request the most that one call may name.
var longBase = strings.Repeat("d/", 740) + "x"

// shortPaths returns n paths of few bytes, others for each round.
func shortPaths(round, n int) []string {
	paths := make([]string, n)
	for i := range paths {
		paths[i] = strconv.FormatInt(int64(round*n+i), 36)
	}
	return paths
}

// announceTooMuch opens sessions with the largest buffer and announces as many paths as one
// call can name, again and again. It returns how many sessions it got, and how many
// calls were refused.
func announceTooMuch(t *testing.T, c *control.Client, sessions, rounds int) (opened, refused int) {
	t.Helper()
	for n := range sessions {
		var open control.OpenResult
		switch err := calls(c, "loader.open", control.OpenParams{Task: fmt.Sprint("abuse", n), Buffer: 1_000_000}, &open); {
		case errors.Is(err, &control.Error{Code: control.CodeOverQuota}):
			refused++
			continue
		case err != nil:
			t.Error(err)
			continue
		}
		opened++
		for round := range rounds {
			err := calls(c, "loader.preload", control.PathsParams{Session: open.Session, Base: longBase, Paths: shortPaths(round, 1400)}, nil)
			if errors.Is(err, &control.Error{Code: control.CodeOverQuota}) {
				refused++
			} else if err != nil {
				t.Error(err)
			}
		}
	}
	return opened, refused
}

// sampler is somebody who uses the loader as it is meant.
func (m *loaderMount) sampler(t *testing.T, uid int) {
	t.Helper()
	caller{uid}.do(t, m.at, func(c *control.Client) {
		var open control.OpenResult
		if err := calls(c, "loader.open", control.OpenParams{Task: "honest", Buffer: 4}, &open); err != nil {
			t.Errorf("user %d: %v", uid, err)
			return
		}
		paths := control.PathsParams{Session: open.Session, Paths: []string{"train/001.jpg", "train/002.jpg"}, Timeout: programtest.Patience.Milliseconds()}
		var waited control.WaitResult
		if err := errors.Join(calls(c, "loader.preload", paths, nil), calls(c, "loader.wait", paths, &waited)); err != nil {
			t.Errorf("user %d: %v", uid, err)
		}
		for _, f := range waited.Files {
			if f.State != "ready" {
				t.Errorf("user %d: %+v", uid, f)
			}
		}
		if err := calls(c, "loader.close", control.CloseParams{Session: open.Session}, nil); err != nil {
			t.Errorf("user %d: %v", uid, err)
		}
	})
}

// sessionBytes returns what lies in the cache directory of sessions.
func (m *loaderMount) sessionBytes(t *testing.T) (files int, bytes int64) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(m.cache, sessionstore.Dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if info, err := os.Stat(name); err == nil {
			bytes += info.Size()
		}
	}
	return len(names), bytes
}

// TestSessionFilesCountInTheCachesSize compares what the SSD tier may have before, while and
// after there are files of sessions.
func TestSessionFilesCountInTheCachesSize(t *testing.T) {
	m := mountForLoader(t, 1)
	limit := func() int64 { return programtest.StatusOf(t, m.at).Cache.SSD.Limit }
	before := limit()
	c := dial(t, m.at)
	var open control.OpenResult
	if err := calls(c, "loader.open", control.OpenParams{Task: "much", Buffer: 10_000}, &open); err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		if err := calls(c, "loader.preload", control.PathsParams{Session: open.Session, Base: longBase, Paths: shortPaths(round, 1400)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	programtest.Eventually(t, "the tier has as much less as the files have", func() bool {
		files, bytes := m.sessionBytes(t)
		return files == 1 && bytes > 64<<10 && limit() <= before-bytes
	})
	if err := calls(c, "loader.close", control.CloseParams{Session: open.Session}, nil); err != nil {
		t.Fatal(err)
	}
	programtest.Eventually(t, "the tier has it all again", func() bool {
		files, _ := m.sessionBytes(t)
		return files == 0 && limit() == before
	})
}

func TestOneUserCanNeitherFillTheMemoryNorTheDiskNorStopOthers(t *testing.T) {
	m := mountForAbuse(t, fewFiles)
	var opened, refused int
	caller{firstAbuser}.do(t, m.at, func(c *control.Client) { opened, refused = announceTooMuch(t, c, 1500, 1) })
	m.sampler(t, firstAbuser+1)
	m.sampler(t, 0)
	m.readAll(t)
	programtest.Eventually(t, "what is held was saved", func() bool { n, _ := m.sessionBytes(t); return n > 0 })
	files, bytes := m.sessionBytes(t)
	t.Logf("%d of 1500 sessions were opened, %d calls were refused, %d session files have %d kB", opened, refused, files, bytes/1000)
	if opened == 0 || opened > 600 || refused < 900 {
		t.Error("one user has more sessions than its share")
	}
	if bytes > 16<<20 {
		t.Errorf("session files have %d bytes", bytes)
	}
	m.bounded(t)
}

// TestThreeHundredUsersAtOnceCanNeitherFillTheMemoryNorStopRoot has each of them announce too much,
// with the memory tier full: what takes memory is how many requests are served at once.
func TestThreeHundredUsersAtOnceCanNeitherFillTheMemoryNorStopRoot(t *testing.T) {
	m := mountForAbuse(t, manyFiles)
	var opened, refused atomic.Int64
	abusers(t, m.at, 300, func(_ int, c *control.Client) {
		o, r := announceTooMuch(t, c, 7, 4)
		opened.Add(int64(o))
		refused.Add(int64(r))
	})
	m.sampler(t, 0)
	m.readAll(t)
	t.Logf("three hundred users opened %d of 2100 sessions; %d calls were refused", opened.Load(), refused.Load())
	if opened.Load() > 1152 || refused.Load() == 0 {
		t.Error("they have more sessions than their share")
	}
	m.bounded(t)
}
