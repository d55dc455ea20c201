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
)

// A volume is provisioned, and two pods of a node share it; then it is removed with what is in it, and nothing else.
func TestAVolumeFromItsClaimToItsEnd(t *testing.T) {
	w := newWorld(t)
	w.put("others/file", "theirs")
	w.put("team/pvc-10/file", "of a neighbour with a longer name")
	create := &spec.CreateVolumeRequest{
		Name: "pvc-1", VolumeCapabilities: []*spec.VolumeCapability{rwx("memory=64MiB")}, Secrets: goodSecret(), CapacityRange: &spec.CapacityRange{RequiredBytes: 1 << 30},
		Parameters: map[string]string{attrSource: "oss://" + testBucket + "/team/", attrEndpoint: w.endpoint, attrOnDelete: onDeleteRemove},
	}
	made, err := w.CreateVolume(t.Context(), create)
	w.must(err)
	v := w.static("pvc-1", "memory=64MiB")
	v.id, v.context = made.GetVolume().GetVolumeId(), made.GetVolume().GetVolumeContext()
	if v.context[attrSource] != "oss://"+testBucket+"/team/pvc-1" || made.GetVolume().GetCapacityBytes() != 1<<30 {
		t.Errorf("provisioned %v", made)
	}
	w.must(os.MkdirAll(filepath.Dir(v.staging()), 0o700))
	w.must(os.MkdirAll(filepath.Dir(v.target("a")), 0o700))

	w.must(v.stage())
	w.must(v.publish("a", false))
	w.must(v.publish("b", true))
	if n := len(w.daemons()); n != 1 {
		t.Errorf("%d daemons serve one volume", n)
	}
	w.must(os.WriteFile(filepath.Join(v.target("a"), "checkpoint"), []byte("weights"), 0o644))
	if text, err := os.ReadFile(filepath.Join(v.target("b"), "checkpoint")); string(text) != "weights" {
		t.Errorf("the other pod reads %q, %v", text, err)
	}
	if err := os.WriteFile(filepath.Join(v.target("b"), "x"), nil, 0o644); !errors.Is(err, unix.EROFS) {
		t.Errorf("a pod that only reads writes: %v", err)
	}
	if text, err := os.ReadFile(w.path("run", digest(v.id), "credentials")); err != nil || !strings.Contains(string(text), testSecret) {
		t.Errorf("keys: %v", err)
	}
	if info, err := os.Stat(w.path("run", digest(v.id), "credentials")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("keys: %v, %v", info, err)
	}
	stats, err := w.NodeGetVolumeStats(t.Context(), &spec.NodeGetVolumeStatsRequest{VolumeId: v.id, VolumePath: v.target("a")})
	if err != nil || len(stats.GetUsage()) != 1 || stats.GetUsage()[0].GetTotal() <= 0 || stats.GetUsage()[0].GetUnit() != spec.VolumeUsage_BYTES {
		t.Errorf("stats %v, %v", stats, err)
	}
	health, err := w.NodeGetVolumeHealth(t.Context(), &spec.NodeGetVolumeHealthRequest{VolumeId: v.id})
	if err != nil || len(health.GetVolumeHealth().GetHealthStatuses()) != 0 {
		t.Errorf("health %v, %v", health, err)
	}

	w.code("unstage what is published", v.unstage(), codes.FailedPrecondition)
	w.must(v.unpublish("a"))
	w.must(v.unpublish("b"))
	w.must(v.unstage())
	v.gone()
	if keys := w.keys(); !slices.Contains(keys, "team/pvc-1/checkpoint") {
		t.Errorf("unstaged, and in the bucket are %v", keys)
	}

	remove := &spec.DeleteVolumeRequest{VolumeId: v.id, Secrets: goodSecret()}
	for range 2 {
		if _, err := w.DeleteVolume(t.Context(), remove); err != nil {
			t.Fatal(err)
		}
	}
	if keys := w.keys(); !slices.Equal(keys, []string{"others/file", "team/pvc-10/file"}) {
		t.Errorf("after the removal there are %v", keys)
	}
}
