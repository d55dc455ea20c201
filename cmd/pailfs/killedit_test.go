package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pailfs/pailfs/oss/ossemu"
)

// The object that is edited, too large to be fetched for that, and how much of it an edit
// changes: less than a chunk.
const (
	editedSize = 24 << 20
	editedPage = 4096
)

// TestAcknowledgedEditsOfALargeObjectSurviveKillsAtRandomInstants kills the daemon while pages of
// a large object are written and synced. After the next mount has drained, every page of the
// object is what it was last acknowledged to be, or something newer, and all others are untouched.
func TestAcknowledgedEditsOfALargeObjectSurviveKillsAtRandomInstants(t *testing.T) {
	sweep(t, killAnEditor)
}

// killAnEditor is one round; it reports whether something was left to publish.
func killAnEditor(t *testing.T, seed uint64, round int) (pending bool) {
	rng := rand.New(rand.NewPCG(seed, 2))
	s, cacheDir := startStore(t), filepath.Join(t.TempDir(), "cache")
	content := make([]byte, editedSize)
	for i := range editedSize / editedPage {
		copy(content[i*editedPage:], editedContent(i, 0))
	}
	s.put(t, "large", content)
	if err := s.SetFaults([]ossemu.Fault{{Operation: "UploadPart", Kind: ossemu.FaultSlowFirstByte, Delay: 50 * time.Millisecond}}); err != nil {
		t.Fatal(err)
	}
	f, at := writableMount(t, s, cacheDir)
	acks := &acknowledged{safe: map[string]int{}, begun: map[string]int{}}
	var editor sync.WaitGroup
	editor.Go(func() { editUntilKilled(filepath.Join(at, "large"), seed, acks) })
	g, at := killAndMountAgain(t, s, rng, round, f, at, cacheDir, editor.Wait)
	mustRun(t, "flush", at)
	var got bytes.Buffer
	if err := s.Get(testBucket, "large", &got); err != nil {
		t.Fatal(err)
	}
	if got.Len() != editedSize {
		t.Errorf("seed %d: %d bytes", seed, got.Len())
	}
	for i := range got.Len() / editedPage {
		page, name := got.Next(editedPage), fmt.Sprint(i)
		generation := acks.safe[name]
		for generation <= acks.begun[name] && !bytes.Equal(page, editedContent(i, generation)) {
			generation++
		}
		if generation > acks.begun[name] {
			t.Errorf("seed %d: page %d begins with %.40q, which is no generation from %d to %d", seed, i, page, acks.safe[name], acks.begun[name])
		}
	}
	mustRun(t, "umount", at)
	return strings.Contains(g.log.String(), "publishing what an earlier mount had left")
}

// editedContent is what a generation of a page holds.
func editedContent(page, generation int) []byte {
	line := fmt.Sprintf("page %d generation %d\n", page, generation)
	return bytes.Repeat([]byte(line), editedPage/len(line)+1)[:editedPage]
}

// editUntilKilled writes runs of pages, some longer than a chunk, and syncs or closes.
func editUntilKilled(path string, seed uint64, acks *acknowledged) {
	rng := rand.New(rand.NewPCG(seed, 3))
	for generation := 1; ; {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return
		}
		for range 1 + rng.IntN(4) {
			first, count := rng.IntN(editedSize/editedPage-600), 1+rng.IntN(3)
			if rng.IntN(8) == 0 {
				count = 300 + rng.IntN(300)
			}
			var pages []byte
			for i := range count {
				acks.begin(fmt.Sprint(first+i), generation)
				pages = append(pages, editedContent(first+i, generation)...)
			}
			_, err := f.WriteAt(pages, int64(first)*editedPage)
			if err == nil && rng.IntN(4) > 0 {
				err = f.Sync()
			} else if err == nil {
				err = f.Close()
				if err == nil {
					f, err = os.OpenFile(path, os.O_RDWR, 0)
				}
			}
			if err != nil {
				_ = f.Close() // the daemon is gone
				return
			}
			for i := range count {
				acks.end(fmt.Sprint(first+i), generation)
			}
			generation++
		}
		if f.Close() != nil {
			return
		}
	}
}
