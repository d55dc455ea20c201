package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pailfs/pailfs/oss/ossemu"
)

// sweepRounds is how often the daemon is killed; PAILFS_SYSTEMTEST_ROUNDS adds
// rounds to it.
const sweepRounds = 3

// acknowledged is what a writer was told is safe: the last generation of each file
// whose close, or fsync, succeeded, and the last that was begun.
type acknowledged struct {
	mu          sync.Mutex
	safe, begun map[string]int
}

func (a *acknowledged) begin(name string, generation int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begun[name] = generation
}

func (a *acknowledged) end(name string, generation int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.safe[name] = generation
}

// sweepContent is what a generation of a file holds: sizes below and beyond what
// travels in the journal.
func sweepContent(name string, generation int) []byte {
	line := fmt.Sprintf("%s generation %d\n", name, generation)
	return bytes.Repeat([]byte(line), 1+(generation*977)%9000)
}

// TestAcknowledgedWritesSurviveKillsAtRandomInstants kills the daemon while
// writers write. Whatever close or fsync had accepted is in the bucket once the
// next mount has drained, and a checkpoint that is named by `latest` is complete.
// Between the two the cache directory is moved, or its index removed.
func TestAcknowledgedWritesSurviveKillsAtRandomInstants(t *testing.T) {
	sweep(t, killOnce)
}

// sweep carries out rounds of once, which reports whether something was left to publish.
func sweep(t *testing.T, once func(t *testing.T, seed uint64, round int) bool) {
	t.Helper()
	rounds := sweepRounds
	if more, err := strconv.Atoi(os.Getenv("PAILFS_SYSTEMTEST_ROUNDS")); err == nil {
		rounds += more
	}
	pending := 0
	for round := range rounds {
		seed := uint64(time.Now().UnixNano())
		t.Logf("round %d: seed %d", round, seed)
		if once(t, seed, round) {
			pending++
		}
	}
	if pending == 0 {
		t.Error("nothing was pending at any kill: the test shows nothing")
	}
}

// killOnce is one round; it reports whether something was left to publish.
func killOnce(t *testing.T, seed uint64, round int) (pending bool) {
	rng := rand.New(rand.NewPCG(seed, 1))
	s, cacheDir := startStore(t), filepath.Join(t.TempDir(), "cache")
	if err := s.SetFaults([]ossemu.Fault{{Operation: "PutObject", Kind: ossemu.FaultSlowFirstByte, Delay: 20 * time.Millisecond}}); err != nil {
		t.Fatal(err)
	}
	f, at := writableMount(t, s, cacheDir)
	acks := &acknowledged{safe: map[string]int{}, begun: map[string]int{}}
	var writers sync.WaitGroup
	for i := range 2 {
		writers.Go(func() { writeUntilKilled(at, fmt.Sprint("dir", i), acks) })
	}
	g, at := killAndMountAgain(t, s, rng, round, f, at, cacheDir, writers.Wait)
	mustRun(t, "flush", at)
	for name, generation := range acks.safe {
		s.holdsSince(t, seed, name, generation, acks.begun[name])
	}
	mustRun(t, "umount", at)
	return strings.Contains(g.log.String(), "publishing what an earlier mount had left")
}

// killAndMountAgain kills f at a random instant, waits until whoever wrote has noticed, and mounts
// again: with the cache directory as it is, without its index, or elsewhere.
func killAndMountAgain(t *testing.T, s *store, rng *rand.Rand, round int, f *foreground, at, cacheDir string, noticed func()) (*foreground, string) {
	t.Helper()
	// The instant of the kill is what is random here.
	time.Sleep(time.Duration(rng.IntN(900)) * time.Millisecond)
	if err := f.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-f.done
	noticed()
	mustRun(t, "umount", at)
	switch round % 3 {
	case 1:
		if err := os.Remove(filepath.Join(cacheDir, "index.db")); err != nil {
			t.Fatal(err)
		}
	case 2:
		moved := filepath.Join(filepath.Dir(cacheDir), "another machine")
		if err := os.Rename(cacheDir, moved); err != nil {
			t.Fatal(err)
		}
		cacheDir = moved
	}
	if err := s.SetFaults(nil); err != nil {
		t.Fatal(err)
	}
	return writableMount(t, s, cacheDir)
}

// writeUntilKilled writes checkpoints below dir: shards, then latest, which names
// them.
func writeUntilKilled(at, dir string, acks *acknowledged) {
	if os.Mkdir(filepath.Join(at, dir), 0o755) != nil {
		return
	}
	for generation := 1; ; generation++ {
		for _, name := range []string{dir + "/shard0", dir + "/shard1", dir + "-latest"} {
			acks.begin(name, generation)
			if !writeSafely(filepath.Join(at, name), sweepContent(name, generation), generation%3 == 0) {
				return
			}
			acks.end(name, generation)
		}
	}
}

// writeSafely writes a file and reports whether it was accepted.
func writeSafely(path string, content []byte, sync bool) bool {
	f, err := os.Create(path)
	if err != nil {
		return false
	}
	_, err = f.Write(content)
	if err == nil && sync {
		err = f.Sync()
	}
	return f.Close() == nil && err == nil
}

// holdsSince fails unless the key holds the generation that was acknowledged, or
// what had been written of one that was begun after it: a file that is being
// rewritten when its writer is cut off is what it would be on a local disk.
func (s *store) holdsSince(t *testing.T, seed uint64, key string, generation, last int) {
	t.Helper()
	var got bytes.Buffer
	if err := s.Get(testBucket, key, &got); err != nil {
		t.Errorf("seed %d: %s, generation %d: %v", seed, key, generation, err)
		return
	}
	for g := generation; g <= last; g++ {
		if bytes.Equal(got.Bytes(), sweepContent(key, g)) || g > generation && bytes.HasPrefix(sweepContent(key, g), got.Bytes()) {
			return
		}
	}
	t.Errorf("seed %d: %s holds %d bytes, %.40q, which is no generation from %d to %d", seed, key, got.Len(), got.Bytes(), generation, last)
}
