package api

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestNormalizeDatasetTakesEverySpellingOfOneName(t *testing.T) {
	for _, name := range []string{"b/train", " oss://b/train/ ", "/b/train", "b/train//"} {
		if got, err := NormalizeDataset(name); got != "b/train" || err != nil {
			t.Errorf("NormalizeDataset(%q) is %q, %v", name, got, err)
		}
	}
	for _, name := range []string{"", "oss://", "b/../c", "b//c", "b/\nc"} {
		if got, err := NormalizeDataset(name); err == nil {
			t.Errorf("NormalizeDataset(%q) is %q, no error", name, got)
		}
	}
}

func TestLabelKeysAreWhatKubernetesTakes(t *testing.T) {
	// The hash is part of the contract: schedulers written elsewhere compute it too.
	if got, want := DatasetLabel("b/train"), "pailfs.io/ds.ba31fc87"; got != want {
		t.Errorf("label is %s, want %s", got, want)
	}
}

func TestNodeCacheIsReadAsItWasWritten(t *testing.T) {
	want := NodeCacheStatus{
		ObservedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Mounts:     []MountStatus{{Name: "data", Path: "/mnt/data", Ready: true, CapacityBytes: 1 << 40, DirtyBytes: 1 << 53}},
		Datasets:   []DatasetStatus{{Name: "b/train", Hash: DatasetHash("b/train"), BytesWarm: 8, BytesTotal: 10}},
		GPUs:       &GPUStatus{State: "Healthy", Expected: 8, Healthy: 8},
	}
	raw, err := json.Marshal(map[string]any{"kind": KindNodeCache, "status": want})
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := json.Unmarshal(raw, &object); err != nil {
		t.Fatal(err)
	}
	got, err := DecodeNodeCache(object)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
	if f := got.Datasets[0].Fraction(); f != 0.8 {
		t.Errorf("fraction is %v", f)
	}
	if _, err := DecodeNodeCache(map[string]any{"status": "text"}); err == nil {
		t.Error("a status that is text was read")
	}
}
