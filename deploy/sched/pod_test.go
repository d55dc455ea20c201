package sched

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParsePod(t *testing.T) {
	tests := []struct {
		name        string
		annotations map[string]string
		want        Pod
		err         string
	}{
		{name: "dataset", annotations: map[string]string{"pailfs.io/dataset": "oss://b/train/"}, want: Pod{Dataset: "b/train"}},
		{name: "all", annotations: map[string]string{
			"pailfs.io/dataset": "b/train", "pailfs.io/mount": "data", "pailfs.io/dataset-bytes": "150Gi", "pailfs.io/shard": "3", "pailfs.io/gang-size": "8",
		}, want: Pod{Dataset: "b/train", Mount: "data", Bytes: 150 << 30, Shard: "3", Gang: "ns/owner", GangSize: 8}},
		{name: "named gang without dataset", annotations: map[string]string{"pailfs.io/gang-size": "2", "pailfs.io/gang": "g"}, want: Pod{Gang: "ns/g", GangSize: 2}},
		{name: "bad dataset", annotations: map[string]string{"pailfs.io/dataset": "b//x"}, err: "want BUCKET or BUCKET/PREFIX"},
		{name: "bad bytes", annotations: map[string]string{"pailfs.io/dataset": "b", "pailfs.io/dataset-bytes": "much"}, err: `"much" is not a number of bytes`},
		{name: "bad gang", annotations: map[string]string{"pailfs.io/dataset": "b", "pailfs.io/gang-size": "0"}, err: `"0" is not a number of pods`},
	}
	for _, test := range tests {
		got, ok, err := ParsePod(Meta{UID: "u", Namespace: "ns", Name: "p", Annotations: test.annotations, Controller: "owner"}, nil, false)
		if !ok {
			t.Errorf("%s: left alone", test.name)
		}
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%s: error %v, want %q", test.name, err, test.err)
			}
			continue
		}
		test.want.Key, test.want.Name = "u", "ns/p"
		if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
			t.Errorf("%s: error %v (-want +got):\n%s", test.name, err, diff)
		}
	}
	if _, _, err := ParsePod(Meta{Annotations: map[string]string{"pailfs.io/gang-size": "2"}}, nil, false); err == nil || !strings.Contains(err.Error(), "no controller") {
		t.Errorf("gang without a name: error %v", err)
	}
	if p, ok, err := ParsePod(Meta{Labels: map[string]string{"pailfs.io/dataset": "b"}}, nil, false); !ok || err != nil || p.Dataset != "b" {
		t.Errorf("dataset as a label: %v %v %v", p, ok, err)
	}
}

func TestTimesCountsTheScarcest(t *testing.T) {
	free := Resources{"cpu": 4000, "nvidia.com/gpu": 8, "nvidia.com/gpu.shared": 3}
	for _, test := range []struct {
		wants Resources
		want  int
	}{
		{Resources{"nvidia.com/gpu": 2}, 4},
		{Resources{"nvidia.com/gpu": 1, "cpu": 1500}, 2},
		{Resources{"nvidia.com/gpu.shared": 1}, 3},
		{Resources{"nvidia.com/mig-1g.10gb": 1}, 0},
	} {
		if got := test.wants.Times(free); got != test.want {
			t.Errorf("%v fits %d times, want %d", test.wants, got, test.want)
		}
	}
}

func TestResourcesInWords(t *testing.T) {
	r := Resources{"nvidia.com/gpu": 2, "cpu": 1500, "memory": 64 << 30, "pods": 1}
	if got, want := r.String(), "2 nvidia.com/gpu, 1.5 cpu, 64 GiB memory"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
