package suite

import (
	"fmt"
	"slices"

	"github.com/pailfs/pailfs/bench/dataset"
	"github.com/pailfs/pailfs/bench/workload"
	"github.com/pailfs/pailfs/bench/workload/growth"
	"github.com/pailfs/pailfs/bench/workload/list"
	"github.com/pailfs/pailfs/bench/workload/read"
	"github.com/pailfs/pailfs/bench/workload/train"
	"github.com/pailfs/pailfs/bench/workload/write"
)

// Workloads returns all workloads for data of the given sizes, in the order in
// which they are listed.
func Workloads(s workload.Sizes) []workload.Workload {
	return slices.Concat(read.Workloads(s), write.Workloads(s), list.Workloads(s), train.Workloads(s))
}

// Find returns the workload called name.
func Find(s workload.Sizes, name string) (workload.Workload, error) {
	for _, w := range Workloads(s) {
		if w.Name == name {
			return w, nil
		}
	}
	return workload.Workload{}, fmt.Errorf("there is no workload %q: see --list", name)
}

// filesOf describes the files of set.
func filesOf(s workload.Sizes, set workload.Set) *dataset.Manifest {
	if m := train.Files(s, set); m != nil {
		return m
	}
	if m := growth.Files(s, set); m != nil {
		return m
	}
	return read.Files(s, set)
}
