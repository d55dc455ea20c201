package node

import (
	"testing"
	"time"

	"github.com/pailfs/pailfs/deploy/node/api"
)

func TestANodeCacheIsWrittenWhenItIsWorthIt(t *testing.T) {
	base := func() *api.NodeCacheStatus {
		return &api.NodeCacheStatus{
			Mounts:   []api.MountStatus{{Name: "data", Ready: true, CapacityBytes: 1000, UsedBytes: 500}},
			Datasets: []api.DatasetStatus{{Name: "b/d", BytesWarm: 100, BytesTotal: 1000}},
			GPUs:     &api.GPUStatus{State: "Healthy", Healthy: 8},
		}
	}
	w := &cacheWriter{last: base(), at: began, period: cachePeriod}
	for _, c := range []struct {
		about  string
		change func(*api.NodeCacheStatus)
		after  time.Duration
		want   bool
	}{
		{"nothing", func(*api.NodeCacheStatus) {}, 20 * time.Second, false},
		{"nothing, for long", func(*api.NodeCacheStatus) {}, 30 * time.Second, true},
		{"4 % of a dataset", func(s *api.NodeCacheStatus) { s.Datasets[0].BytesWarm += 40 }, 20 * time.Second, false},
		{"5 % of a dataset", func(s *api.NodeCacheStatus) { s.Datasets[0].BytesWarm += 50 }, 20 * time.Second, true},
		{"5 %, too soon", func(s *api.NodeCacheStatus) { s.Datasets[0].BytesWarm += 50 }, 4 * time.Second, false},
		{"5 % of the cache, less", func(s *api.NodeCacheStatus) { s.Mounts[0].UsedBytes -= 50 }, 20 * time.Second, true},
		{"the first byte written", func(s *api.NodeCacheStatus) { s.Mounts[0].DirtyBytes = 1 }, 20 * time.Second, true},
		{"a mount that is away", func(s *api.NodeCacheStatus) { s.Mounts[0].Ready = false }, 20 * time.Second, true},
		{"a new dataset", func(s *api.NodeCacheStatus) { s.Datasets = append(s.Datasets, api.DatasetStatus{Name: "b/e"}) }, 20 * time.Second, true},
		{"a GPU less", func(s *api.NodeCacheStatus) { s.GPUs.Healthy-- }, 20 * time.Second, true},
		{"no GPUs", func(s *api.NodeCacheStatus) { s.GPUs = nil }, 20 * time.Second, true},
	} {
		s := base()
		c.change(s)
		if got := w.due(s, began.Add(c.after)); got != c.want {
			t.Errorf("%s after %s: due is %t", c.about, c.after, got)
		}
	}
}
