package csi

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
)

// reboot is what a restart of the node leaves of the driver, the daemons, their mounts and what lies in memory.
func (w *world) reboot() {
	w.Helper()
	w.kill()
	w.killDaemons()
	t, err := readMounts()
	w.must(err)
	for _, m := range slices.Backward(t) {
		if m.FSType == fsType && strings.HasPrefix(m.Mountpoint, w.dir+"/") {
			if err := unix.Unmount(m.Mountpoint, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) { // it went with another one
				w.Fatal(err)
			}
		}
	}
	w.must(os.RemoveAll(w.path("run")))
	w.start()
	w.conn.ResetConnectBackoff()
}

// writeAndKeep stages a volume, publishes it to pod a and writes a file that stays on the node.
func (v *volumeOf) writeAndKeep(name string) {
	v.Helper()
	v.must(v.stage())
	v.must(v.publish("a", false))
	v.must(v.emulator.SetFaults(noUploads))
	v.must(os.WriteFile(filepath.Join(v.target("a"), name), []byte("weights"), 0o644))
}

// namesTheCache fails the test unless an error has a code and says on which node and where data lies.
func (w *world) namesTheCache(what string, err error, want codes.Code) {
	w.Helper()
	w.code(what, err, want)
	for _, part := range []string{w.path("cache"), "node-1"} {
		if !strings.Contains(err.Error(), part) {
			w.Errorf("%s: %q is not said: %v", what, part, err)
		}
	}
}

// rolesOwn lets the driver's pailfs have the rights of the node's role, of which keys in a file take the place.
func (w *world) rolesOwn() {
	w.Helper()
	w.must(os.WriteFile(w.path("role.json"), []byte(goodSecret()[secretKey]), 0o600))
	w.program(`for a; do shift; case "$a" in --credentials=ecs-ram-role) set -- "$@" --credentials=file --credentials-file=` + w.path("role.json") + `;; *) set -- "$@" "$a";; esac; done`)
}

// TestWhatLiesInTheCacheIsUploadedAfterARestartOfTheNode where that needs no keys that went with it.
func TestWhatLiesInTheCacheIsUploadedAfterARestartOfTheNode(t *testing.T) {
	w := newWorld(t)
	w.rolesOwn()
	v := w.static("v")
	v.context["credentials"], v.secret = "ecs-ram-role", nil
	v.writeAndKeep("checkpoint")
	w.reboot()
	w.must(v.unpublish("a"))
	w.must(w.emulator.SetFaults(nil))
	w.must(v.unstage())
	v.gone()
	if keys := w.keys(); !slices.Equal(keys, []string{"checkpoint"}) {
		t.Errorf("in the bucket are %v", keys)
	}
	w.must(v.unstage())
	v.gone()
}

// TestUnstagingSaysWhereDataLiesAfterARestartOfTheNode where keys went with it: until the volume is staged there again.
func TestUnstagingSaysWhereDataLiesAfterARestartOfTheNode(t *testing.T) {
	w := newWorld(t)
	v := w.static("v")
	v.writeAndKeep("checkpoint")
	w.reboot()
	w.must(w.emulator.SetFaults(nil))
	w.must(v.unpublish("a"))
	for range 2 {
		w.namesTheCache("unstage", v.unstage(), codes.FailedPrecondition)
		v.gone()
	}
	v.context[attrSource] += "/other"
	w.namesTheCache("stage another source", v.stage(), codes.FailedPrecondition)
	v.gone()
	v.context[attrSource] = "oss://" + testBucket
	w.must(v.stage())
	w.must(v.unstage())
	v.gone()
	if keys := w.keys(); !slices.Equal(keys, []string{"checkpoint"}) {
		t.Errorf("in the bucket are %v", keys)
	}
}

// TestAnInlineVolumeWaitsForItsDataAfterARestartOfTheNode, and its cache ends with it.
func TestAnInlineVolumeWaitsForItsDataAfterARestartOfTheNode(t *testing.T) {
	w := newWorld(t)
	v := w.static("csi-inline")
	v.context[ephemeralKey] = "true"
	publish := func() error {
		_, err := w.NodePublishVolume(t.Context(), &spec.NodePublishVolumeRequest{
			VolumeId: v.id, TargetPath: v.target("a"), VolumeCapability: v.capability, VolumeContext: v.context, Secrets: v.secret,
		})
		return err
	}
	w.must(publish())
	w.must(w.emulator.SetFaults(noUploads))
	w.must(os.WriteFile(filepath.Join(v.target("a"), "checkpoint"), []byte("weights"), 0o644))
	w.reboot()
	w.must(w.emulator.SetFaults(nil))
	w.namesTheCache("unpublish", v.unpublish("a"), codes.FailedPrecondition)
	w.must(publish())
	w.must(v.unpublish("a"))
	v.gone()
	if caches, err := os.ReadDir(w.path("cache")); err != nil || len(caches) > 0 {
		t.Errorf("left: %v, %v", caches, err)
	}
	if keys := w.keys(); !slices.Equal(keys, []string{"checkpoint"}) {
		t.Errorf("in the bucket are %v", keys)
	}
}

// TestAnotherSourceIsRefusedWhileADeadDaemonLeftData: what it left would be forgotten.
func TestAnotherSourceIsRefusedWhileADeadDaemonLeftData(t *testing.T) {
	w := newWorld(t)
	v := w.static("v")
	v.writeAndKeep("checkpoint")
	w.must(v.unpublish("a"))
	w.killDaemons()
	other := *v
	other.context = map[string]string{attrSource: "oss://" + testBucket + "/other", attrEndpoint: w.endpoint}
	w.namesTheCache("stage another source", other.stage(), codes.FailedPrecondition)
	w.must(w.emulator.SetFaults(nil))
	w.must(v.unstage())
	if keys := w.keys(); !slices.Equal(keys, []string{"checkpoint"}) {
		t.Errorf("in the bucket are %v", keys)
	}
	w.must(other.stage())
	w.must(other.unstage())
	v.gone()
}

// TestCachesThatNobodyUsesGoAfterAWeek, but not those in use, nor those with data that is nowhere else.
func TestCachesThatNobodyUsesGoAfterAWeek(t *testing.T) {
	w := newWorld(t)
	n, err := openNode(NodeConfig{ID: "node-1", Pailfs: w.path("pailfs"), RunDir: w.path("run"), CacheDir: w.path("cache")}, slog.New(slog.DiscardHandler))
	w.must(err)
	caches := func() (volumes []string) {
		notes, err := n.notes("")
		w.must(err)
		for _, c := range notes {
			if _, err := os.Stat(c.Daemon.CacheDir); err != nil {
				t.Error(err)
			}
			volumes = append(volumes, c.Volume)
		}
		slices.Sort(volumes)
		return volumes
	}
	unused, used, kept := w.static("unused"), w.static("used"), w.static("kept")
	w.must(unused.stage())
	w.must(unused.unstage())
	w.must(used.stage())
	kept.writeAndKeep("checkpoint")
	w.must(kept.unpublish("a"))
	// What a loss of power took a part of is there for people; a mount that is only read has no staging directory.
	damaged, frozen := w.static("damaged"), w.static("frozen")
	for _, v := range []*volumeOf{damaged, frozen} {
		w.must(v.stage())
		w.must(v.unstage())
	}
	cacheOf := func(id string) string {
		notes, err := n.notes(id)
		if w.must(err); len(notes) != 1 {
			t.Fatalf("%d caches of %s", len(notes), id)
		}
		return notes[0].Daemon.CacheDir
	}
	w.must(os.WriteFile(filepath.Join(cacheOf("damaged"), stagingName, "journal.rest-1"), []byte("rest"), 0o600))
	w.must(os.RemoveAll(filepath.Join(cacheOf("frozen"), stagingName)))
	w.killDaemons()
	w.must(os.RemoveAll(filepath.Join(w.path("run"), digest(kept.id)))) // as after a restart of the node
	all := []string{"damaged", "frozen", "kept", "unused", "used"}
	n.sweep(t.Context(), time.Now().Add(unusedFor-time.Hour))
	if got := caches(); !slices.Equal(got, all) {
		t.Errorf("before a week is over: %v", got)
	}
	w.must(os.Mkdir(w.path("cache", "half"+goneSuffix), 0o700))
	for range 2 {
		n.sweep(t.Context(), time.Now().Add(unusedFor+time.Minute))
		if got, want := caches(), []string{"damaged", "kept", "used"}; !slices.Equal(got, want) {
			t.Errorf("when a week is over: %v, want %v", got, want)
		}
	}
	names, err := filepath.Glob(w.path("cache", "*"))
	if w.must(err); len(names) != 6 {
		t.Errorf("left are %v", names)
	}
	if _, err := os.Stat(filepath.Join(w.path("run"), digest(unused.id))); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of the volume is left: %v", err)
	}
	w.must(w.emulator.SetFaults(nil))
	w.must(kept.stage())
	w.must(kept.unstage())
	w.must(used.stage())
	w.must(used.unstage())
	if keys := w.keys(); !slices.Equal(keys, []string{"checkpoint"}) {
		t.Errorf("in the bucket are %v", keys)
	}
}
