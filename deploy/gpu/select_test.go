package gpu

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// board reads a host of eight GPUs: two NUMA nodes of four, NVLinks between pairs.
func board(t *testing.T, extra map[int]string) Host {
	t.Helper()
	var lines [8]string
	for i := range lines {
		lines[i] = extra[i]
		peer := i ^ 1
		lines[i] += fmt.Sprintf("\nnvlink %d\nnvlink %d", peer+1, peer+1)
		for j := range lines {
			if j/4 == i/4 {
				lines[i] += fmt.Sprintf("\nnear %d 20", j)
			}
		}
	}
	return newHost(t, gpus(8, lines[:]...)).Read()
}

func indexes(devices []Chosen) string {
	var list []string
	for _, d := range devices {
		list = append(list, itoa(d.Index))
	}
	return strings.Join(list, ",")
}

func TestSelectPrefersNeighbours(t *testing.T) {
	busy := "proc 1 1000"
	for _, c := range []struct {
		name  string
		extra map[int]string
		count int
		want  string
	}{
		{"one, the first", nil, 1, "0"},
		{"one, the least busy", map[int]string{0: "set util 50"}, 1, "1"},
		{"a linked pair", map[int]string{0: busy}, 2, "2,3"},
		{"the last linked pair, past single ones", map[int]string{0: busy, 2: busy, 4: busy}, 2, "6,7"},
		{"four on one board half", map[int]string{1: busy}, 4, "4,5,6,7"},
		{"a degraded one is the last choice", map[int]string{4: "set remap_pending 1", 5: "set remap_pending 1"}, 6, "0,1,2,3,6,7"},
		{"all", nil, 8, "0,1,2,3,4,5,6,7"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Select(board(t, c.extra), Request{Count: c.count}, nil)
			if err != nil || indexes(got) != c.want {
				t.Errorf("%s, %v; want %s", indexes(got), err, c.want)
			}
		})
	}
}

func TestRefusalSaysWhyOfEachGPU(t *testing.T) {
	h := newHost(t, gpus(5, "set lost 1", "proc 77 5", "set mem_used 900000000", "set mig 1"), "0000:01:00.0").Read()
	_, err := Select(h, Request{Count: 2, MinFree: 500 << 20}, func(uuid string) bool { return uuid == "GPU-4" })
	if !errors.Is(err, ErrNotEnough) {
		t.Fatalf("error: %v", err)
	}
	for _, want := range []string{"2 asked for, 0 to be had of 5", "GPU is lost", "1 processes run on it", "95 MiB are free, 500 are wanted", "divided by MIG into 0 instances: ask for those with --mig", "another pailfs run has it"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	if _, err := Select(h, Request{}, nil); err == nil {
		t.Error("no GPU at all was selected without an error")
	}
}

func TestInstancesOfDividedGPUs(t *testing.T) {
	const (
		first  = "set mig 1\nmig_instance MIG-a 1 5000 1g.5gb\nmig_instance MIG-b 2 20000 3g.20gb\nmig_proc 77 5"
		second = "set mig 1\nmig_instance MIG-c 1 5000 1g.5gb\nmig_instance MIG-d 2 5000 1g.5gb\nmig_instance MIG-e 3 20000 3g.20gb"
		whole  = ""
	)
	for _, c := range []struct {
		name    string
		gpus    []string
		request Request
		want    string
	}{
		{"of a profile, on the GPU of which the least is free", []string{second, first, whole}, Request{Count: 1, MIG: "1g.5gb"}, "MIG-a"},
		{"of a profile in other letters", []string{second, first, whole}, Request{Count: 1, MIG: "3G.20GB"}, "MIG-e"},
		{"the smallest that does", []string{first, second, whole}, Request{Count: 1, MIG: AnyProfile, MinFree: 6000}, "MIG-e"},
		{"several", []string{first, second, whole}, Request{Count: 3, MIG: AnyProfile}, "MIG-a MIG-c MIG-d"},
		{"one on which something runs", []string{first, whole}, Request{Count: 1, MIG: "3g.20gb", Shared: true}, "MIG-b"},
		{"whole ones where there are any", []string{first, whole}, Request{Count: 1}, "GPU-1"},
		{"unasked where all are divided", []string{first, second}, Request{Count: 1}, "MIG-a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Select(newHost(t, gpus(len(c.gpus), c.gpus...)).Read(), c.request, nil)
			var ids []string
			for _, chosen := range got {
				ids = append(ids, chosen.ID())
			}
			if err != nil || strings.Join(ids, " ") != c.want {
				t.Errorf("%v, %v; want %s", ids, err, c.want)
			}
		})
	}
}

func TestRefusalSaysWhyOfEachInstance(t *testing.T) {
	h := newHost(t, gpus(3, "set mig 1\nmig_instance MIG-a 1 5000 1g.5gb\nmig_proc 77 5\nmig_instance MIG-b 2 5000 1g.5gb\nmig_instance MIG-c 3 9000 2g.10gb", "", "set mig 1")).Read()
	_, err := Select(h, Request{Count: 2, MIG: "1g.5gb"}, func(uuid string) bool { return uuid == "MIG-b" })
	if !errors.Is(err, ErrNotEnough) || errors.Is(err, ErrTooFew) {
		t.Fatalf("error: %v", err)
	}
	for _, want := range []string{
		"2 asked for, 0 to be had of 2 MIG instances (1g.5gb)", "process 77 runs on it", "another pailfs run has it", "2g.10gb is not asked for", "GPU 1 (GPU-1): it is not divided",
		"GPU 2 (GPU-2): it is divided by MIG and has no instance",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	if _, err := Select(h, Request{Count: 1, MIG: "7g.80gb"}, nil); !errors.Is(err, ErrTooFew) {
		t.Errorf("a profile that no GPU has: %v", err)
	}
}

func TestLeasesOfInstances(t *testing.T) {
	h := newHost(t, gpus(1, "set mig 1\nmig_instance MIG-a 1 5000 1g.5gb\nmig_instance MIG-b 2 5000 1g.5gb")).Read()
	dir := filepath.Join(t.TempDir(), "locks")
	first, err := Acquire(dir, h, Request{Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Release()
	second, err := Acquire(dir, h, Request{Count: 1})
	if err != nil || first.Chosen[0].ID() == second.Chosen[0].ID() {
		t.Fatalf("%v: %v and %v", err, first.Chosen, second)
	}
	defer second.Release()
	if _, err := Acquire(dir, h, Request{Count: 1}); !errors.Is(err, ErrNotEnough) {
		t.Errorf("a third lease: %v", err)
	}
}

func TestTwoLeasesNeverShareAGPU(t *testing.T) {
	h := newHost(t, gpus(3)).Read()
	dir := filepath.Join(t.TempDir(), "locks")
	first, err := Acquire(dir, h, Request{Count: 2})
	if err != nil {
		t.Fatal(err)
	}
	second, err := Acquire(dir, h, Request{Count: 1})
	if err != nil || indexes(first.Chosen) != "0,1" || indexes(second.Chosen) != "2" {
		t.Fatalf("first %s, second %s: %v", indexes(first.Chosen), indexes(second.Chosen), err)
	}
	defer second.Release()
	if _, err := Acquire(dir, h, Request{Count: 1}); !errors.Is(err, ErrNotEnough) || !strings.Contains(err.Error(), "another pailfs run") {
		t.Errorf("a third lease: %v", err)
	}
	first.Release()
	third, err := Acquire(dir, h, Request{Count: 2})
	if err != nil {
		t.Fatal(err)
	}
	third.Release()
}
