package attributes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/aliyun/aliyun-oss-go-sdk/oss"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/oss/credentials"
	"github.com/pailfs/pailfs/oss/ossemu"
	"github.com/pailfs/pailfs/oss/ossemu/ossemutest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is notes that forget nothing.
type memory struct{ sync.Map }

func (m *memory) Note(obj oss.Object) ([]byte, bool) {
	v, ok := m.Load(obj)
	if !ok {
		return nil, false
	}
	return v.([]byte), true
}

func (m *memory) SetNote(obj oss.Object, note []byte) { m.Store(obj, note) }

// world is an emulated bucket and a tree with attributes over it.
type world struct {
	*ossemutest.Emulator
	t      *testing.T
	client *oss.Client
	notes  *memory
	tree   *Tree
	live   *manifest.Live
	// own are the HEADs that making objects has cost.
	own int64
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, Emulator: ossemutest.Start(t, ossemu.Config{}), notes: new(memory)}
	source, err := credentials.Open(credentials.Config{
		Kind: credentials.Static, AccessKeyID: w.AccessKeyID, AccessKeySecret: w.AccessKeySecret,
	}, nil)
	w.must(err)
	w.client, err = oss.Open(oss.Config{Endpoint: w.Endpoint, Bucket: w.Bucket, Credentials: source}, nil, nil, nil)
	w.must(err)
	t.Cleanup(func() { w.must(w.client.Close()) })
	w.open()
	t.Cleanup(func() {
		w.must(w.tree.Close())
		w.must(w.live.Close())
	})
	return w
}

// open makes the trees.
func (w *world) open() {
	w.t.Helper()
	var err error
	w.live, err = manifest.NewLive(manifest.LiveConfig{TTL: time.Hour}, w.client.As(oss.Demand), prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	w.must(err)
	w.tree, err = New(Config{Markers: true}, w.live, w.client.As(oss.Demand), w.client.As(oss.Prefetch), w.notes, nil)
	w.must(err)
}

// reopen makes them anew, with what was noted.
func (w *world) reopen() {
	w.t.Helper()
	w.must(w.tree.Close())
	w.must(w.live.Close())
	w.open()
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// put makes an object with metadata.
func (w *world) put(key, content string, meta map[string]string) {
	w.t.Helper()
	before := w.Requests("HeadObject")
	_, err := w.client.As(oss.Upload).Put(w.t.Context(), key, strings.NewReader(content), oss.PutOptions{Meta: meta})
	w.must(err)
	w.own += w.Requests("HeadObject") - before
}

func (w *world) lookup(dir, name string) manifest.Entry {
	w.t.Helper()
	e, _, err := w.tree.Lookup(w.t.Context(), dir, name)
	w.must(err)
	return e
}

func (w *world) heads(want int64, after string) {
	w.t.Helper()
	if got := w.Requests("HeadObject") - w.own; got != want {
		w.t.Errorf("%d HEADs after %s, want %d", got, after, want)
	}
}

func meta(mode uint32, uid, gid int, mtime string) map[string]string {
	return map[string]string{"mode": fmt.Sprint(mode), "uid": fmt.Sprint(uid), "gid": fmt.Sprint(gid), "mtime": mtime}
}

func TestEachVersionIsAskedOnce(t *testing.T) {
	w := newWorld(t)
	w.put("dir/tool", "#!/bin/sh\n", meta(0o100755, 7, 8, "1700000000"))
	w.put("dir/plain", "x", nil)
	want := manifest.Attr{
		Known: manifest.AttrMode | manifest.AttrUID | manifest.AttrGID | manifest.AttrMTime,
		Mode:  0o755, UID: 7, GID: 8, MTime: time.Unix(1_700_000_000, 0).UTC(),
	}
	for range 3 {
		if e := w.lookup("dir", "tool"); !e.Attr.Equal(&want) || e.Kind != manifest.File {
			t.Errorf("found %+v with %+v", e, e.Attr)
		}
		if e := w.lookup("dir", "plain"); e.Attr == nil || e.Attr.Known != 0 {
			t.Errorf("found %+v", e.Attr)
		}
		w.reopen()
	}
	w.heads(2, "three times the names of two objects")
	w.put("dir/tool", "#!/bin/bash\n", meta(0o100700, 7, 8, "1700000001"))
	w.reopen()
	if e := w.lookup("dir", "tool"); e.Attr.Mode != 0o700 {
		t.Errorf("the new version has mode %o", e.Attr.Mode)
	}
	w.heads(3, "another version")
}

func TestListingsAskNothingAndTellWhatIsKnown(t *testing.T) {
	w := newWorld(t)
	for i := range 50 {
		w.put(fmt.Sprintf("d/%02d", i), "x", meta(0o100600, 1, 1, "1"))
	}
	w.lookup("d", "07")
	entries, _, err := w.tree.ReadDir(t.Context(), "d", "", 100)
	w.must(err)
	if len(entries) != 50 {
		t.Fatalf("%d entries", len(entries))
	}
	for _, e := range entries {
		if known := e.Name == "07"; e.Partial == known || (e.Attr != nil) != known {
			t.Errorf("%s: partial %t, %+v", e.Name, e.Partial, e.Attr)
		}
	}
	w.heads(1, "a lookup and a listing")
}

// Whoever looks at one name after the other waits for few of them.
func TestNamesOfADirectoryAreAskedAhead(t *testing.T) {
	w := newWorld(t)
	const n = 600
	for i := range n {
		w.Put(fmt.Sprintf("d/%04d", i), []byte("x"))
	}
	w.lookup("d", "0000")
	w.lookup("d", "0001")
	// With the second one a run begins: nobody asks for the third.
	entries, _, err := w.live.ReadDir(t.Context(), "d", manifest.CursorAfter("d/0001"), 1)
	w.must(err)
	ahead := entries[0].Object
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if _, ok := w.notes.Note(ahead); ok {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("nothing is asked ahead")
		}
	}
	for i := range n {
		if e := w.lookup("d", fmt.Sprintf("%04d", i)); e.Attr == nil {
			t.Errorf("%s has no attributes", e.Name)
		}
	}
	w.must(w.tree.Close())
	w.heads(n, "all names")
}

func TestLinksOfOssfsAreLinks(t *testing.T) {
	w := newWorld(t)
	w.put("bin/python", "/usr/bin/python3", meta(0o120777, 0, 0, "1"))
	long := strings.Repeat("x", 5000)
	w.put("bin/large", long, meta(0o120777, 0, 0, "1"))
	for range 2 {
		e := w.lookup("bin", "python")
		if e.Kind != manifest.Symlink {
			t.Fatalf("it is %+v", e)
		}
		if target, err := w.tree.ReadLink(t.Context(), e); err != nil || target != "/usr/bin/python3" {
			t.Errorf("it leads to %q, %v", target, err)
		}
		if e := w.lookup("bin", "large"); e.Kind != manifest.File {
			t.Error("what is longer than a path can be is no link")
		}
		w.reopen()
	}
	if got := w.Requests("GetObject"); got != 1 {
		t.Errorf("%d GETs for one link", got)
	}
}

func TestSymlinkObjectsAreShownWithoutAsking(t *testing.T) {
	w := newWorld(t)
	w.Put("target", []byte("x"))
	client, err := sdk.New(w.Endpoint, w.AccessKeyID, w.AccessKeySecret)
	w.must(err)
	maker, err := client.Bucket(w.Bucket)
	w.must(err)
	w.must(maker.PutSymlink("link", "target"))
	e := w.lookup("", "link")
	if target, err := w.tree.ReadLink(t.Context(), e); err != nil || e.Kind != manifest.Symlink || target != "target" {
		t.Errorf("%+v leads to %q, %v", e, target, err)
	}
	w.heads(0, "a symlink object")
}

func TestMarkersOfDirectoriesAreAskedOnceAMinute(t *testing.T) {
	w := newWorld(t)
	w.put("made/", "", meta(0o40700, 3, 4, "1700000000"))
	w.put("made/x", "x", nil)
	w.put("bare/x", "x", nil)
	for range 2 {
		if e := w.lookup("", "made"); e.Attr == nil || e.Attr.Mode != 0o700 || e.Attr.UID != 3 {
			t.Errorf("found %+v", e.Attr)
		}
		if e := w.lookup("", "bare"); e.Attr == nil || e.Attr.Known != 0 {
			t.Errorf("found %+v", e.Attr)
		}
	}
	w.heads(2, "two directories")
	w.tree.Forget("", "made")
	w.lookup("", "made")
	w.heads(3, "a directory that was forgotten")
}

func TestAReplacedObjectIsAskedAgain(t *testing.T) {
	w := newWorld(t)
	w.put("file", "one", meta(0o100600, 1, 1, "1"))
	if _, _, err := w.live.Lookup(t.Context(), "", "file"); err != nil {
		t.Fatal(err)
	}
	w.put("file", "other", meta(0o100640, 1, 1, "1"))
	if e := w.lookup("", "file"); e.Object.Size != 5 || e.Attr == nil || e.Attr.Mode != 0o640 {
		t.Errorf("found %+v with %+v", e, e.Attr)
	}
	w.Delete("file")
	w.notes.Clear()
	if _, _, err := w.tree.Lookup(t.Context(), "", "file"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a deleted file: %v", err)
	}
}

func TestWhatMayNotBeAskedIsShownWithout(t *testing.T) {
	w := newWorld(t)
	w.put("file", "one", meta(0o100600, 1, 1, "1"))
	w.must(w.Server.SetFaults([]ossemu.Fault{{Operation: "HeadObject", Kind: ossemu.FaultError, Status: 403, Code: "AccessDenied"}}))
	if e := w.lookup("", "file"); e.Attr != nil || e.Object.Size != 3 {
		t.Errorf("found %+v", e)
	}
}

// versions is notes that take what has the same key and bytes for the same version, as the
// cache does.
type versions struct{ memory }

func (v *versions) Note(obj oss.Object) ([]byte, bool) {
	obj.ModTime = time.Time{}
	return v.memory.Note(obj)
}

func (v *versions) SetNote(obj oss.Object, note []byte) {
	obj.ModTime = time.Time{}
	v.memory.SetNote(obj, note)
}

// lateHead is a bucket whose first answer to a HEAD is late.
type lateHead struct {
	Bucket
	heads atomic.Int32
	// asked is closed when the bucket has answered, the caller is told when answer is.
	asked, answer chan struct{}
}

func (l *lateHead) Head(ctx context.Context, key string) (oss.Info, error) {
	info, err := l.Bucket.Head(ctx, key)
	if l.heads.Add(1) == 1 {
		close(l.asked)
		<-l.answer
	}
	return info, err
}

// An object is made again of the same bytes, with other metadata, while an answer about the one
// before is on its way: what was noted of the new one stays.
func TestLateAnswerDoesNotTakeThePlaceOfWhatWasNoted(t *testing.T) {
	now := meta(0o100755, 7, 8, "1700000000")
	for name, noted := range map[string]map[string]string{"what it has is told": now, "it is to be asked for": nil} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			late := &lateHead{Bucket: w.client.As(oss.Demand), asked: make(chan struct{}), answer: make(chan struct{})}
			tree, err := New(Config{}, w.live, late, w.client.As(oss.Prefetch), new(versions), nil)
			w.must(err)
			defer func() { w.must(tree.Close()) }()
			w.put("f", "content", meta(0o100600, 7, 8, "1700000000"))
			first := make(chan error)
			go func() {
				_, _, err := tree.Lookup(t.Context(), "", "f")
				first <- err
			}()
			<-late.asked
			info, err := w.client.As(oss.Upload).Put(t.Context(), "f", strings.NewReader("content"), oss.PutOptions{Meta: now})
			w.must(err)
			tree.Noted(info.Object, noted)
			tree.Forget("", "f")
			mode := func() uint32 {
				t.Helper()
				e, _, err := tree.Lookup(t.Context(), "", "f")
				w.must(err)
				return e.Attr.Mode & 0o7777
			}
			if got := mode(); got != 0o755 {
				t.Errorf("while the late answer is on its way the mode is %o, want 755", got)
			}
			close(late.answer)
			w.must(<-first)
			if got := mode(); got != 0o755 {
				t.Errorf("after the late answer the mode is %o, want 755", got)
			}
		})
	}
}
