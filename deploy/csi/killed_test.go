package csi

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/pailfs/pailfs/oss/ossemu"
)

// noUploads makes the store refuse what is written.
var noUploads = []ossemu.Fault{
	{Operation: "PutObject", Kind: ossemu.FaultError, Code: "InternalError"},
	{Operation: "InitiateMultipartUpload", Kind: ossemu.FaultError, Code: "InternalError"},
}

// read returns what a file holds, or the error.
func read(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func TestPodsGoOnWhenTheDriverIsKilled(t *testing.T) {
	w := newWorld(t)
	w.put("file", "content")
	v := w.static("v")
	w.must(v.stage())
	w.must(v.publish("a", false))
	before := w.daemons()
	w.restart()
	if got := read(filepath.Join(v.target("a"), "file")); got != "content" {
		t.Errorf("a pod reads %q", got)
	}
	w.must(v.stage())
	w.must(v.publish("a", false))
	w.must(v.publish("b", false))
	if after := w.daemons(); !slices.Equal(before, after) {
		t.Errorf("daemons %v, and %v before", after, before)
	}
	w.must(v.unpublish("a"))
	w.must(v.unpublish("b"))
	w.must(v.unstage())
	v.gone()
}

// A container that follows what is mounted on its node goes on when the volume is published again.
func TestADeadDaemonIsMountedOver(t *testing.T) {
	w := newWorld(t)
	w.put("file", "content")
	v := w.static("v")
	w.must(v.stage())
	w.must(v.publish("a", false))
	container := w.path("container")
	w.must(os.Mkdir(container, 0o700))
	w.must(unix.Mount(v.target("a"), container, "", unix.MS_BIND, ""))
	w.must(unix.Mount("", container, "", unix.MS_SLAVE, ""))

	w.killDaemons()
	if _, err := os.Stat(filepath.Join(container, "file")); !errors.Is(err, unix.ENOTCONN) && !errors.Is(err, unix.ECONNABORTED) {
		t.Errorf("without a daemon a container sees %v", err)
	}
	_, err := w.NodeGetVolumeStats(t.Context(), &spec.NodeGetVolumeStatsRequest{VolumeId: v.id, VolumePath: v.target("a")})
	w.code("stats of a dead mount", err, codes.Unavailable)
	health, err := w.NodeGetVolumeHealth(t.Context(), &spec.NodeGetVolumeHealthRequest{VolumeId: v.id})
	w.must(err)
	if h := health.GetVolumeHealth().GetHealthStatuses(); len(h) != 1 || h[0].GetStatus() != spec.VolumeHealthErrorType_INACCESSIBLE || h[0].GetReason() != "DaemonDead" {
		t.Errorf("health %v", h)
	}

	w.restart()
	w.must(v.publish("a", false))
	for _, at := range []string{v.target("a"), container} {
		if got := read(filepath.Join(at, "file")); got != "content" {
			t.Errorf("%s after the volume was published again: %q", at, got)
		}
	}
	if n := len(w.daemons()); n != 1 {
		t.Errorf("%d daemons", n)
	}
	health, err = w.NodeGetVolumeHealth(t.Context(), &spec.NodeGetVolumeHealthRequest{VolumeId: v.id})
	if h := health.GetVolumeHealth().GetHealthStatuses(); err != nil || len(h) != 0 {
		t.Errorf("health %v, %v", h, err)
	}
	for err = nil; err == nil; {
		err = unix.Unmount(container, unix.MNT_DETACH)
	}
	w.must(v.unpublish("a"))
	w.must(v.unstage())
	v.gone()
}

// What was written is in the bucket when the volume is unstaged, also if the daemon died before; and while it cannot be
// uploaded the volume stays.
func TestWhatADeadDaemonLeftIsUploadedBeforeTheEnd(t *testing.T) {
	w := newWorld(t)
	v := w.static("v")
	w.must(v.stage())
	w.must(v.publish("a", false))
	w.must(w.emulator.SetFaults(noUploads))
	w.must(os.WriteFile(filepath.Join(v.target("a"), "checkpoint"), []byte("weights"), 0o644))
	w.killDaemons()
	w.must(v.unpublish("a"))
	w.must(w.emulator.SetFaults(append(noUploads, ossemu.Fault{Operation: "*", Kind: ossemu.FaultError, Code: "AccessDenied"})))
	err := v.unstage()
	w.code("unstage while the store refuses", err, codes.Unavailable)
	if !strings.Contains(err.Error(), w.path("cache")) {
		t.Errorf("it is not said where it stays: %v", err)
	}
	w.must(w.emulator.SetFaults(nil))
	w.must(v.unstage())
	v.gone()
	if keys := w.keys(); !slices.Equal(keys, []string{"checkpoint"}) {
		t.Errorf("in the bucket are %v", keys)
	}
}

// The driver is killed when it runs a command of pailfs, before or while that runs: the same call, sent again, and those
// that follow bring all to its end.
func TestAKilledDriverIsTakenUpAtEachCommand(t *testing.T) {
	kinds := map[string]string{
		// The driver is dead when the command begins, which runs on beside its successor.
		"and the command runs on": `kill -9 $PPID; while kill -0 $PPID; do :; done 2>/dev/null`,
		// Nothing comes of the command either.
		"and the command with it": `kill -9 $PPID; exit 1`,
	}
	for kind, line := range kinds {
		for _, command := range []string{"mount", "umount", "status"} {
			t.Run(command+" "+kind, func(t *testing.T) {
				w := newWorld(t)
				v := w.static("v")
				steps := []struct {
					name string
					call func() error
				}{
					{"stage", v.stage},
					{"stage again", v.stage},
					{"publish", func() error { return v.publish("a", true) }},
					{"unpublish", func() error { return v.unpublish("a") }},
					{"unstage", v.unstage},
				}
				killed := 0
				for _, s := range steps {
					// One life is given for each step.
					w.program(`if test "$1" = ` + command + ` && rm ` + w.path("life") + ` 2>/dev/null; then ` + line + `; fi`)
					w.must(os.WriteFile(w.path("life"), nil, 0o600))
					err := s.call()
					if _, gone := os.Stat(w.path("life")); gone != nil {
						killed++
						w.code(s.name, err, codes.Unavailable)
						w.restart()
						err = s.call()
					}
					if err != nil {
						t.Fatalf("%s: %v", s.name, err)
					}
				}
				if killed == 0 {
					t.Error("the driver was never killed")
				}
				v.gone()
			})
		}
	}
}
