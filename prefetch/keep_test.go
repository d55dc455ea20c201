package prefetch

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pailfs/pailfs/prefetch/internal/prefetchtest"
	"github.com/pailfs/pailfs/prefetch/keep"
	"github.com/pailfs/pailfs/prefetch/session"
)

// mountFiles are the session files on a mount that several nodes use.
type mountFiles struct {
	mu    sync.Mutex
	files map[session.Key][]byte
}

func newMountFiles() *mountFiles { return &mountFiles{files: map[session.Key][]byte{}} }

// later is what a node finds after those that use m have been gone without a word.
func (m *mountFiles) later() *mountFiles {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &mountFiles{files: maps.Clone(m.files)}
}

func (m *mountFiles) text(key session.Key) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return string(m.files[key])
}

// nodeView is one node's way to a mountFiles.
type nodeView struct {
	*mountFiles
	seen map[session.Key]string
	down bool
}

func (m *mountFiles) node() *nodeView {
	return &nodeView{mountFiles: m, seen: map[session.Key]string{}}
}

var errDown = errors.New("the store is down")

func (v *nodeView) Where(session.Key) keep.Persistence { return keep.Persistence{Kind: keep.KindMount} }

func (v *nodeView) Load(_ context.Context, key session.Key) ([]byte, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.down {
		return nil, errDown
	}
	v.seen[key] = string(v.files[key])
	if v.files[key] == nil {
		return nil, fs.ErrNotExist
	}
	return v.files[key], nil
}

func (v *nodeView) Save(_ context.Context, key session.Key, data []byte) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.down:
		return errDown
	case v.files[key] != nil && string(v.files[key]) != v.seen[key]:
		return keep.ErrTaken
	}
	v.files[key], v.seen[key] = data, string(data)
	return nil
}

func (v *nodeView) Remove(_ context.Context, key session.Key) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.down {
		return errDown
	}
	if string(v.files[key]) == v.seen[key] {
		delete(v.files, key)
	}
	return nil
}

// node is the prefetcher of one node of many.
type node struct {
	*Prefetcher
	cache *prefetchtest.Cache
	view  *nodeView
	stop  func()
}

var trainPaths = prefetchtest.Names("train", 20)

func startNode(t *testing.T, host string, own *memoryStore, m *mountFiles) *node {
	t.Helper()
	n := &node{cache: prefetchtest.NewCache(1 << 30), view: m.node()}
	n.Prefetcher, n.stop = running(t, Config{Store: own, Shared: n.view, Host: host}, prefetchtest.NewTree(1000, trainPaths...), n.cache)
	return n
}

func noFiles() *memoryStore { return &memoryStore{files: map[session.Key][]byte{}} }

// open opens the session of key with its persistence path on the mount.
func (n *node) open(t *testing.T, instance string) (session.Name, keep.Opened) {
	t.Helper()
	got, err := n.Keeper.Open(t.Context(), one, session.Params{Instance: instance, Buffer: 100, Shared: true})
	if err != nil {
		t.Fatal(err)
	}
	return session.Name{Session: got.Session, UID: one.UID}, got
}

// hold announces the first files and lets some of them go.
func (n *node) hold(t *testing.T, name session.Name, announced, released int) {
	t.Helper()
	if _, _, err := n.Sessions.Preload(name, trainPaths[:announced]); err != nil {
		t.Fatal(err)
	}
	wait(t, n.Prefetcher, name, trainPaths[:announced])
	if _, _, err := n.Sessions.Release(name, trainPaths[:released]); err != nil {
		t.Fatal(err)
	}
}

func TestAnotherNodeGoesOnWithWhatWasHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mount := newMountFiles()
		a := startNode(t, "a", noFiles(), mount)
		name, got := a.open(t, "first")
		if got.Persistence.Kind != keep.KindMount {
			t.Errorf("%+v", got.Persistence)
		}
		a.hold(t, name, 12, 5)
		a.stop()

		b := startNode(t, "b", noFiles(), mount)
		defer b.stop()
		name, got = b.open(t, "second")
		if got.Adopted != 7 || got.Persistence.Kind != keep.KindMount {
			t.Fatalf("%+v", got)
		}
		for _, f := range wait(t, b.Prefetcher, name, trainPaths[5:12]) {
			if f.State != "ready" {
				t.Errorf("%+v", f)
			}
		}
		if fetches, held := b.cache.Count(); fetches != 7 || held != 7 {
			t.Errorf("%d were fetched, %d are held", fetches, held)
		}
	})
}

func TestStateOnTheMountIsSeldomSavedAndFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mount := newMountFiles()
		a := startNode(t, "a", noFiles(), mount)
		defer a.stop()
		name, _ := a.open(t, "first")
		saves, last := 0, ""
		for i := range 60 {
			if _, _, err := a.Sessions.Preload(name, trainPaths[i%20:i%20+1]); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			if _, _, err := a.Sessions.Release(name, trainPaths[i%20:i%20+1]); err != nil {
				t.Fatal(err)
			}
			if text := mount.text(one); text != last {
				saves, last = saves+1, text
			}
		}
		if saves < 4 || saves > 7 {
			t.Errorf("saved %d times in a minute", saves)
		}
		if _, err := a.Keeper.Close(name.Session, one.UID, false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(keep.ShareEvery + keep.SaveEvery)
		synctest.Wait()
		if text := mount.text(one); text != "" {
			t.Errorf("a session that was closed is on the mount: %s", text)
		}
	})
}

func TestStateOfANodeAtWorkIsNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mount := newMountFiles()
		a := startNode(t, "a", noFiles(), mount)
		name, _ := a.open(t, "first")
		a.hold(t, name, 12, 5)
		time.Sleep(keep.ShareEvery + keep.SaveEvery)
		synctest.Wait()
		left := mount.later() // what others find if a dies now

		b := startNode(t, "b", noFiles(), mount)
		_, got := b.open(t, "second")
		if got.Adopted != 0 || got.Persistence.Kind == keep.KindMount || !strings.Contains(got.Persistence.Reason, `host "a"`) {
			t.Errorf("%+v", got)
		}
		before := mount.text(one)
		time.Sleep(2 * keep.ShareEvery)
		synctest.Wait()
		if mount.text(one) != before {
			t.Error("it was overwritten")
		}
		b.stop()
		a.stop()

		time.Sleep(keep.InUse)
		c := startNode(t, "c", noFiles(), left)
		defer c.stop()
		if _, got := c.open(t, "third"); got.Adopted != 7 {
			t.Errorf("of a node that died %+v", got)
		}
	})
}

func TestANodeWhoseStateWasTakenStopsSavingIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mount := newMountFiles()
		a := startNode(t, "a", noFiles(), mount)
		defer a.stop()
		name, _ := a.open(t, "first")
		a.hold(t, name, 12, 5)
		time.Sleep(keep.InUse + keep.ShareEvery + keep.SaveEvery) // it is silent, and seems dead
		b := startNode(t, "b", noFiles(), mount)
		defer b.stop()
		if _, got := b.open(t, "second"); got.Adopted != 7 {
			t.Fatalf("%+v", got)
		}
		time.Sleep(keep.ShareEvery + keep.SaveEvery)
		if _, _, err := a.Sessions.Release(name, trainPaths[5:6]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * keep.ShareEvery)
		synctest.Wait()
		if text := mount.text(one); !strings.Contains(text, `"host":"b"`) {
			t.Errorf("the mount has %s", text)
		}
		if _, got := a.open(t, "first"); got.Persistence.Kind == keep.KindMount || got.Persistence.Reason == "" {
			t.Errorf("a is told %+v", got.Persistence)
		}
	})
}

func TestWhatWasClosedElsewhereIsNotHeldAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mount, own := newMountFiles(), noFiles()
		a := startNode(t, "a", own, mount)
		name, _ := a.open(t, "first")
		a.hold(t, name, 12, 5)
		time.Sleep(2 * keep.ShareEvery)
		a.stop()

		b := startNode(t, "b", noFiles(), mount)
		name, _ = b.open(t, "second")
		if _, err := b.Keeper.Close(name.Session, one.UID, false); err != nil {
			t.Fatal(err)
		}
		b.stop()

		a = startNode(t, "a", own, mount)
		defer a.stop()
		if _, got := a.open(t, "third"); got.Adopted != 0 || got.Persistence.Kind != keep.KindMount {
			t.Errorf("%+v", got)
		}
	})
}

func TestTheNewerStateOfNodeAndMountCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mount, own := newMountFiles(), noFiles()
		a := startNode(t, "a", own, mount)
		name, _ := a.open(t, "first")
		a.hold(t, name, 12, 0)
		a.stop()
		time.Sleep(time.Minute)
		b := startNode(t, "b", noFiles(), mount)
		name, _ = b.open(t, "second")
		if _, _, err := b.Sessions.Release(name, trainPaths[:10]); err != nil {
			t.Fatal(err)
		}
		b.stop()
		time.Sleep(time.Minute)
		a = startNode(t, "a", own, mount)
		if _, got := a.open(t, "third"); got.Adopted != 2 {
			t.Errorf("%+v", got)
		}
		a.stop()
		time.Sleep(session.DefaultLease + time.Minute)
		a = startNode(t, "a", own, mount)
		defer a.stop()
		if _, got := a.open(t, "fourth"); got.Adopted != 0 {
			t.Errorf("after its lease: %+v", got)
		}
	})
}

func TestWhatIsNoSessionIsNotReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, text := range []string{"mine", `{"pailfs_session":99}`, `{"pailfs_session":1,"key":{"uid":7,"task":"other","worker":0}}`} {
			mount := newMountFiles()
			mount.files[one] = []byte(text)
			a := startNode(t, "a", noFiles(), mount)
			name, got := a.open(t, "first")
			if got.Persistence.Kind == keep.KindMount || got.Persistence.Reason == "" {
				t.Errorf("beside %s: %+v", text, got.Persistence)
			}
			a.hold(t, name, 12, 5)
			time.Sleep(2 * keep.ShareEvery)
			a.stop()
			if now := mount.text(one); now != text {
				t.Errorf("%s became %s", text, now)
			}
		}
	})
}

func TestAStoreThatIsDownCostsNothingButTheSharedState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mount, own := newMountFiles(), noFiles()
		a := startNode(t, "a", own, mount)
		name, _ := a.open(t, "first")
		a.view.mu.Lock()
		a.view.down = true
		a.view.mu.Unlock()
		a.hold(t, name, 12, 5)
		time.Sleep(5 * keep.ShareEvery)
		a.view.mu.Lock()
		a.view.down = false
		a.view.mu.Unlock()
		time.Sleep(keep.ShareEvery + keep.SaveEvery)
		synctest.Wait()
		if text := mount.text(one); strings.Count(text, `"path"`) != 7 {
			t.Errorf("when it is up again the mount has %s", text)
		}
		a.stop()

		b := startNode(t, "b", own, mount)
		defer b.stop()
		b.view.down = true
		if _, got := b.open(t, "second"); got.Adopted != 7 || got.Persistence.Kind == keep.KindMount || !errors.Is(got.Persistence.Detail, errDown) {
			t.Errorf("%+v", got)
		}
	})
}
