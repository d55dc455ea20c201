package publish

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/oss/ossemu"
)

func TestPublishedManifestIsFoundWithOneRequest(t *testing.T) {
	for _, prefix := range []string{"", "train/", "数据 集/a+b/"} {
		e, b := store(t)
		if _, err := Latest(t.Context(), b, prefix); !errors.Is(err, ErrNone) {
			t.Fatalf("nothing is published, and Latest said %v", err)
		}
		published := publishOne(t, b, prefix, 1)
		e.Server.ResetStats()
		g, err := Latest(t.Context(), b, prefix)
		if err != nil {
			t.Fatal(err)
		}
		if n := e.Requests(""); n != 1 {
			t.Errorf("Latest made %d requests", n)
		}
		if d := cmp.Diff(published, g); d != "" {
			t.Errorf("Latest differs from what was published (-published +latest):\n%s", d)
		}
		found, err := Find(t.Context(), b, prefix, 1)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(published, found); d != "" {
			t.Errorf("Find differs from what was published (-published +found):\n%s", d)
		}
		dir := t.TempDir()
		checkFetched(t, b, g, dir, 1000)
		e.Server.ResetStats()
		checkFetched(t, b, g, dir, 1000)
		if n := e.Requests(""); n != 0 {
			t.Errorf("fetching it again made %d requests", n)
		}
	}
}

func TestLargeManifestIsPublishedInParts(t *testing.T) {
	e, b := store(t)
	const size = 1<<20 + 12345
	var reported atomic.Int64
	_, err := Publish(t.Context(), b, "p/", file(t, content(1, "test", size)), facts(1, "test"),
		Options{PartBytes: 256 << 10, Progress: func(n int64) { reported.Add(n) }})
	if err != nil {
		t.Fatal(err)
	}
	if e.Requests("UploadPart") != 5 || reported.Load() != size {
		t.Errorf("%d parts, %d bytes reported", e.Requests("UploadPart"), reported.Load())
	}
	g, err := Latest(t.Context(), b, "p/")
	if err != nil {
		t.Fatal(err)
	}
	checkFetched(t, b, g, t.TempDir(), size)
}

func TestOneOfTwoPublishersOfANumberLosesAndSaysSo(t *testing.T) {
	for _, part := range []int64{0, 256 << 10} {
		_, b := store(t)
		const size = 600 << 10
		const publishers = 6
		errs := make([]error, publishers)
		var g sync.WaitGroup
		for i := range publishers {
			path := file(t, content(1, name(i), size))
			g.Go(func() {
				_, errs[i] = Publish(t.Context(), b, "", path, facts(1, name(i)), Options{PartBytes: part})
			})
		}
		g.Wait()
		latest, err := Latest(t.Context(), b, "")
		if err != nil {
			t.Fatal(err)
		}
		for i, err := range errs {
			switch won := latest.Publisher == name(i); {
			case won && err != nil:
				t.Errorf("the winner failed: %v", err)
			case !won && !errors.Is(err, ErrLost):
				t.Errorf("a loser was told %v", err)
			case !won && !strings.Contains(err.Error(), latest.Publisher):
				t.Errorf("a loser was not told who won: %v", err)
			}
		}
		checkFetched(t, b, latest, t.TempDir(), size)
		uploads, err := b.ListUploads(t.Context(), "")
		if err != nil || len(uploads) != 0 {
			t.Errorf("unfinished uploads: %v, %v", uploads, err)
		}
	}
}

// Publishers take one number after another, readers look all the time: what they
// find is whole, and the last number is the newest in the end.
func TestReadersNeverSeeATornManifest(t *testing.T) {
	e, b := store(t)
	if err := e.Server.SetFaults([]ossemu.Fault{
		{Kind: ossemu.FaultError, Code: "QpsLimitExceeded", Every: 17},
		{Kind: ossemu.FaultLostReply, Every: 23},
	}); err != nil {
		t.Fatal(err)
	}
	const size, each, publishers, readers = 50_000, 6, 3, 2
	publishOne(t, b, "", 1)
	done := make(chan struct{})
	var publishing, reading sync.WaitGroup
	for i := range publishers {
		publishing.Go(func() {
			for published := 0; published < each; {
				n, err := Next(t.Context(), b, "")
				if err != nil {
					t.Error(err)
					return
				}
				path := file(t, content(n, name(i), size))
				_, err = Publish(t.Context(), b, "", path, facts(n, name(i)), Options{Keep: -1})
				switch {
				case err == nil:
					published++
				case !errors.Is(err, ErrLost):
					t.Error(err)
					return
				}
			}
		})
	}
	for range readers {
		dir := t.TempDir()
		reading.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				g, err := Latest(t.Context(), b, "")
				if err != nil {
					t.Error(err)
					return
				}
				if g.Number > 1 {
					path, err := Fetch(t.Context(), b, g, dir, nil)
					if err != nil {
						t.Error(err)
						return
					}
					got, err := os.ReadFile(path)
					if err != nil || string(got) != string(content(g.Number, g.Publisher, size)) {
						t.Errorf("generation %d is not what was published: %v", g.Number, err)
						return
					}
				}
			}
		})
	}
	publishing.Wait()
	close(done)
	reading.Wait()
	if t.Failed() {
		return
	}
	g, err := Latest(t.Context(), b, "")
	if err != nil {
		t.Fatal(err)
	}
	if g.Number != 1+publishers*each {
		t.Errorf("the newest is %d, want %d", g.Number, 1+publishers*each)
	}
}

// lateBucket runs a function once, just before it writes the pointer.
type lateBucket struct {
	oss.Bucket
	before func()
}

func (b *lateBucket) Put(ctx context.Context, key string, body oss.Body, o oss.PutOptions) (oss.Info, error) {
	if strings.HasSuffix(key, pointerName) && b.before != nil {
		run := b.before
		b.before = nil
		run()
	}
	return b.Bucket.Put(ctx, key, body, o)
}

func TestAPointerThatWentBackIsRepaired(t *testing.T) {
	_, b := store(t)
	publishOne(t, b, "", 1)
	late := &lateBucket{Bucket: b}
	late.before = func() { publishOne(t, b, "", 3) }
	publishOne(t, late, "", 2)
	g, err := Latest(t.Context(), b, "")
	if err != nil {
		t.Fatal(err)
	}
	if g.Number != 3 {
		t.Errorf("latest points to %d, and 3 is newer", g.Number)
	}
}

func TestOldGenerationsAreRemoved(t *testing.T) {
	e, b := store(t)
	upload, err := b.CreateUpload(t.Context(), Key("", 3), oss.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	e.Put(Directory+"README", []byte("not ours"))
	for n := range uint64(8) {
		publishOne(t, b, "", n+1)
	}
	kept, err := List(t.Context(), b, "")
	if err != nil {
		t.Fatal(err)
	}
	var got []uint64
	for _, g := range kept {
		got = append(got, g.Number)
	}
	if d := cmp.Diff([]uint64{4, 5, 6, 7, 8}, got); d != "" {
		t.Errorf("kept (-want +got):\n%s", d)
	}
	if keys := e.Keys(Directory); len(keys) != 7 {
		t.Errorf("there are %q", keys)
	}
	if _, err := b.ListParts(t.Context(), upload); !errors.Is(err, oss.ErrNotFound) {
		t.Errorf("what an older publisher left is still there: %v", err)
	}
	if _, err := Find(t.Context(), b, "", 2); !errors.Is(err, ErrNone) {
		t.Errorf("a removed generation: %v", err)
	}
	if n, err := Next(t.Context(), b, ""); n != 9 || err != nil {
		t.Errorf("the next number is %d, %v", n, err)
	}
}

func TestWhatCannotBeUsedIsRefused(t *testing.T) {
	_, b := store(t)
	put := func(key, meta string) {
		t.Helper()
		o := oss.PutOptions{Meta: map[string]string{metaName: meta}}
		if meta == "" {
			o.Meta = nil
		}
		if _, err := b.Put(t.Context(), key, strings.NewReader("x"), o); err != nil {
			t.Fatal(err)
		}
	}
	for meta, want := range map[string]string{
		"":                              "no metadata",
		"{":                             "no JSON",
		`{"format":2}`:                  "format 2",
		`{"format":1}`:                  "not complete",
		`{"format":1,"generation":"x"}`: "not complete",
		`{"format":1,"generation":7,"crc64":"1"}`: "points to nothing",
	} {
		put(pointerKey(""), meta)
		if _, err := Latest(t.Context(), b, ""); !errors.Is(err, ErrPointer) || !strings.Contains(err.Error(), want) {
			t.Errorf("metadata %q: %v", meta, err)
		}
	}
	put(Key("", 5), `{"format":1,"generation":6,"crc64":"1"}`)
	if _, err := Find(t.Context(), b, "", 5); !errors.Is(err, ErrPointer) {
		t.Errorf("a generation that says it is another: %v", err)
	}
	// A pointer that says nothing is replaced by the next publisher.
	publishOne(t, b, "", 6)
	if g, err := Latest(t.Context(), b, ""); err != nil || g.Number != 6 {
		t.Errorf("after publishing: %d, %v", g.Number, err)
	}
}

func TestADownloadIsWholeOrNotThere(t *testing.T) {
	e, b := store(t)
	g := publishOne(t, b, "", 1)
	dir := t.TempDir()
	wrong := g
	wrong.CRC64++
	if _, err := Fetch(t.Context(), b, wrong, dir, nil); !errors.Is(err, oss.ErrCorrupted) {
		t.Errorf("a wrong checksum: %v", err)
	}
	checkEmpty(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Fetch(ctx, b, g, dir, nil); err == nil {
		t.Error("a cancelled download succeeded")
	}
	checkEmpty(t, dir)
	path := checkFetched(t, b, g, dir, 1000)
	leftover, fresh, other := path+".123.tmp", path+".456.tmp", filepath.Join(dir, "notes")
	for _, p := range []string{leftover, fresh, other} {
		if err := os.WriteFile(p, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	long := time.Now().Add(-abandoned - time.Hour)
	if err := os.Chtimes(leftover, long, long); err != nil {
		t.Fatal(err)
	}
	publishOne(t, b, "", 2)
	latest, err := Latest(t.Context(), b, "")
	if err != nil {
		t.Fatal(err)
	}
	newer := checkFetched(t, b, latest, dir, 1000)
	if err := Prune(dir, latest); err != nil {
		t.Fatal(err)
	}
	for p, want := range map[string]bool{path: false, leftover: false, fresh: true, other: true, newer: true} {
		if _, err := os.Stat(p); (err == nil) != want {
			t.Errorf("%s after Prune: %v", p, err)
		}
	}
	e.Delete(Key("", 1))
	if _, err := Fetch(t.Context(), b, g, dir, nil); !errors.Is(err, oss.ErrNotFound) {
		t.Errorf("a generation that is gone: %v", err)
	}
	// An object that is not the version published is never taken for it.
	e.Put(Key("", 2), content(2, "somebody", 1000))
	if err := os.Remove(newer); err != nil {
		t.Fatal(err)
	}
	if _, err := Fetch(t.Context(), b, latest, dir, nil); !errors.Is(err, oss.ErrChanged) {
		t.Errorf("a generation that was overwritten: %v", err)
	}
}

func checkEmpty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		t.Errorf("%s was left", e.Name())
	}
}

// failingBucket fails every part but the first.
type failingBucket struct{ oss.Bucket }

func (b failingBucket) UploadPart(ctx context.Context, u oss.MultipartUpload, n int, body oss.Body) (oss.Part, error) {
	if n > 1 {
		return oss.Part{}, oss.ErrUnavailable
	}
	return b.Bucket.UploadPart(ctx, u, n, body)
}

func TestAFailedPublicationLeavesNothing(t *testing.T) {
	e, b := store(t)
	publishOne(t, b, "", 1)
	_, err := Publish(t.Context(), failingBucket{b}, "", file(t, content(2, "test", 1<<20)), facts(2, "test"), Options{PartBytes: 256 << 10})
	if !errors.Is(err, oss.ErrUnavailable) {
		t.Fatalf("got %v", err)
	}
	if keys := e.Keys(""); len(keys) != 2 {
		t.Errorf("there are %q", keys)
	}
	if uploads, err := b.ListUploads(t.Context(), ""); err != nil || len(uploads) != 0 {
		t.Errorf("unfinished uploads: %v, %v", uploads, err)
	}
	if g, err := Latest(t.Context(), b, ""); err != nil || g.Number != 1 {
		t.Errorf("latest is %d, %v", g.Number, err)
	}
}
