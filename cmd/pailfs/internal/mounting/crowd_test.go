//go:build !race

package mounting

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/programtest"
	"github.com/pailfs/pailfs/prefetch/control"
)

// crowd is how many threads of one user wait at the same moment.
const crowd = 400

// crowd lets many wait in the daemon for what does not come, runs beside meanwhile, and
// returns how many of their calls were answered.
func (m *loaderMount) crowd(t *testing.T, beside func()) (answered int64) {
	t.Helper()
	var count atomic.Int64
	var ready, all sync.WaitGroup
	ready.Add(crowd)
	for range crowd {
		all.Go(func() {
			caller{firstAbuser}.do(t, m.at, func(c *control.Client) {
				var open control.OpenResult
				err := calls(c, "loader.open", control.OpenParams{Task: "crowd", Instance: "one", Buffer: 1}, &open)
				ready.Done()
				if err != nil {
					t.Error(err)
					return
				}
				ready.Wait()
				paths := control.PathsParams{Session: open.Session, Paths: []string{"train/001.jpg", "train/002.jpg"}, Wait: true}
				for range 2 {
					if err := calls(c, "loader.preload", paths, nil); err != nil {
						t.Error(err)
						continue
					}
					count.Add(1)
				}
			})
		})
	}
	ready.Wait()
	beside()
	all.Wait()
	return count.Load()
}

// TestFourHundredThreadsOfOneUserTakeNoMoreThanTheBound lets them wait with the memory tier
// full. go-fuse reads a request into a buffer of 1 MiB, and keeps that until the answer. The first
// buffers are memory that nobody has touched; the next are what the collector took back, and are
// cleared.
func TestFourHundredThreadsOfOneUserTakeNoMoreThanTheBound(t *testing.T) {
	m := mountForAbuse(t, manyFiles)
	for range 2 {
		answered := m.crowd(t, func() {
			m.sampler(t, firstAbuser+1)
			m.sampler(t, 0)
			m.readAll(t)
			programtest.MustRun(t, "status", m.at)
		})
		if answered != 2*crowd {
			t.Errorf("%d of %d calls were answered", answered, 2*crowd)
		}
		caller{firstAbuser + 2}.do(t, m.at, func(c *control.Client) { announceTooMuch(t, c, 30, 4) })
	}
	m.bounded(t)
}
