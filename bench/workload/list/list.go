package list

import (
	"fmt"

	"github.com/pailfs/pailfs/bench/names"
	"github.com/pailfs/pailfs/bench/result"
	"github.com/pailfs/pailfs/bench/workload"
)

// Workloads returns the workloads that list.
func Workloads(s workload.Sizes) []workload.Workload {
	count := func(tree string) int { return Trees(s)[tree].All() }
	return []workload.Workload{
		{
			Name: "list/10k", Help: fmt.Sprintf("names of a directory of %d, with a client that was just started, and again", count(Ordinary)),
			Metric: result.NamesPerSecond, Profile: "seed", List: &workload.Listing{Tree: Ordinary, Pattern: names.Names},
		},
		{
			Name: "list/1m", Help: fmt.Sprintf("the same of %d names, no latency", count(Wide)),
			Metric: result.NamesPerSecond, Profile: "none", List: &workload.Listing{Tree: Wide, Pattern: names.Names},
		},
		{
			Name: "stat/tree", Help: fmt.Sprintf("find with -size over %d files, no latency, with a client that was just started, and again", count(Deep)),
			Metric: result.NamesPerSecond, Profile: "none", List: &workload.Listing{Tree: Deep, Pattern: names.Find},
		},
	}
}

// The trees of names, all in one manifest.
const (
	Ordinary = "list" // a directory as data sets have
	Wide     = "wide" // one very large directory
	Deep     = "tree" // many directories
	// Root begins their keys.
	Root = "names/"
)

// Trees are the trees of names by their name.
func Trees(s workload.Sizes) map[string]names.Tree {
	return map[string]names.Tree{
		Ordinary: {Dirs: 1, Files: s.ListNames},
		Wide:     {Dirs: 1, Files: s.WideNames},
		Deep:     {Dirs: s.TreeDirs, Files: s.TreeNames},
	}
}
