package suite

import (
	"time"

	"github.com/pailfs/pailfs/bench/dataset"
)

// Sizes say how much is read.
type Sizes struct {
	// BigBytes is the size of a large file.
	BigBytes int64
	// WideBytes is the size of the files of which random cold reads take one page each.
	WideBytes int64
	// SmallFiles is how many small files there are, of SmallBytes each.
	SmallFiles int
	SmallBytes int64
	// ColdFiles is how many of them one cold run reads.
	ColdFiles int
	// WarmReads, SSDReads and ColdReads are random reads in one run.
	WarmReads, SSDReads, ColdReads int
	// StreamBytes is the size of the object that is read to see the memory.
	StreamBytes int64
	// Names is how many objects are listed for a manifest, InventoryRows how many an
	// inventory names.
	Names, InventoryRows int
	// ListNames is how many names an ordinary directory has, WideNames a very large
	// one; TreeDirs directories of TreeNames each are a tree.
	ListNames, WideNames, TreeDirs, TreeNames int
	// CheckpointBytes is the size of a checkpoint, all its files together, ModelBytes
	// that of a model that is mapped.
	CheckpointBytes, ModelBytes int64
	// SaveBytes is what torch.save writes, SaveRounds times, one every SaveEvery.
	SaveBytes  int64
	SaveRounds int
	SaveEvery  time.Duration
	// LogBytes is the size of a log, to which AppendBytes are appended AppendRounds times.
	LogBytes                  int64
	AppendBytes, AppendRounds int
	// TinyFiles are created, of TinyBytes each.
	TinyFiles int
	TinyBytes int64
	// DirtyBytes wait for their upload when the daemon's memory is looked at.
	DirtyBytes int64
	// Training is what training reads.
	Training TrainingSizes
	// Growth are the steps in which work grows.
	Growth GrowthSizes
}

// Full are the sizes that the targets name.
func Full() Sizes {
	return Sizes{
		BigBytes: 1 << 30, WideBytes: 16 << 20,
		SmallFiles: 20_000, SmallBytes: 115_000, ColdFiles: 4_000,
		WarmReads: 400_000, SSDReads: 8_000, ColdReads: 300,
		StreamBytes: 20 << 30, Names: 1_000_000, InventoryRows: 10_000_000,
		ListNames: 10_000, WideNames: 1_000_000, TreeDirs: 1_000, TreeNames: 1_000,
		CheckpointBytes: 4 << 30, ModelBytes: 2 << 30, SaveBytes: 2 << 30, SaveRounds: 10, SaveEvery: 5 * time.Second,
		LogBytes: 100 << 20, AppendBytes: 10e6, AppendRounds: 21, TinyFiles: 10_000, TinyBytes: 4 << 10, DirtyBytes: 50 << 30,
		Training: fullTraining(), Growth: fullGrowth(),
	}
}

// Quick are sizes for a comparison in minutes with clients that take their time.
func Quick() Sizes {
	return Sizes{
		BigBytes: 256 << 20, WideBytes: 16 << 20,
		SmallFiles: 2_000, SmallBytes: 115_000, ColdFiles: 400,
		WarmReads: 20_000, SSDReads: 2_000, ColdReads: 40,
		StreamBytes: 2 << 30, Names: 200_000, InventoryRows: 2_000_000,
		ListNames: 10_000, WideNames: 50_000, TreeDirs: 100, TreeNames: 200,
		CheckpointBytes: 256 << 20, ModelBytes: 256 << 20, SaveBytes: 128 << 20, SaveRounds: 3, SaveEvery: time.Second,
		LogBytes: 100 << 20, AppendBytes: 10e6, AppendRounds: 3, TinyFiles: 300, TinyBytes: 4 << 10, DirtyBytes: 8 << 30,
		Training: quickTraining(), Growth: fullGrowth(),
	}
}

// Short are sizes that only show that everything works.
func Short() Sizes {
	return Sizes{
		BigBytes: 64 << 20, WideBytes: 4 << 20,
		SmallFiles: 500, SmallBytes: 115_000, ColdFiles: 100,
		WarmReads: 2_000, SSDReads: 200, ColdReads: 20,
		StreamBytes: 512 << 20, Names: 10_000, InventoryRows: 100_000,
		ListNames: 1_000, WideNames: 20_000, TreeDirs: 20, TreeNames: 100,
		CheckpointBytes: 64 << 20, ModelBytes: 32 << 20, SaveBytes: 32 << 20, SaveRounds: 2, SaveEvery: 100 * time.Millisecond,
		LogBytes: 8 << 20, AppendBytes: 1e6, AppendRounds: 3, TinyFiles: 200, TinyBytes: 4 << 10, DirtyBytes: 1 << 30,
		Training: shortTraining(), Growth: shortGrowth(),
	}
}

// pieces is how many cold runs over small files read different ones.
func (s Sizes) pieces() int { return max(1, s.SmallFiles/max(1, s.ColdFiles)) }

// memory is how much memory is used once before a cold run: what the kernel's
// page cache of the mount, that of the client's cache files, and the client
// itself may take for a large file.
func (s Sizes) memory() int64 { return 3 * s.BigBytes }

// Set names a data set.
type Set string

// The data sets.
const (
	// Big is one large file.
	Big Set = "big"
	// Wide are files that are larger than what a random read need bring in.
	Wide Set = "wide"
	// Small are many small files, 1,000 to a directory.
	Small Set = "small"
	// Stream is one huge file, whose content repeats.
	Stream Set = "stream"
)

// streamPeriod is the length after which the content of Stream repeats, which
// lets the server make it by copying parts.
const streamPeriod = 256 << 20

// make describes the files of set.
func (s Sizes) make(set Set) *dataset.Manifest {
	name := string(set)
	if m := s.makeTraining(set); m != nil {
		return m
	}
	if m := s.makeGrowth(set); m != nil {
		return m
	}
	switch set {
	case Big:
		return dataset.Big(name, 1, 1, s.BigBytes)
	case Wide:
		return dataset.Big(name, 2, s.ColdReads, s.WideBytes)
	case Small:
		return dataset.Small(name, 3, s.SmallFiles, s.SmallBytes, 1000)
	default:
		return dataset.Repeated(name, 4, s.StreamBytes, min(streamPeriod, s.StreamBytes))
	}
}
