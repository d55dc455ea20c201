package workload

import (
	"time"
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

// Memory is how much memory is used once before a cold run: what the kernel's
// page cache of the mount, that of the client's cache files, and the client
// itself may take for a large file.
func (s Sizes) Memory() int64 { return 3 * s.BigBytes }

// Set names a data set.
type Set string

// TrainingSizes say how much is trained with. The shapes are those of MLPerf
// Storage, the counts are not.
type TrainingSizes struct {
	// Images is how many files the set Images has. A cache of a tenth of them is used,
	// or of LeastCache bytes if that is more.
	Images     int
	LeastCache int64
	// Plain is how many of them are read where each takes a round trip.
	Plain int
	// Inside is how many files the set InCache has, which a cache holds.
	Inside int
	// Volumes, Shards and Cubes are the numbers of files of the sets of these names.
	Volumes, Shards, Cubes int
	// VolumeBytes is the mean size of a volume, ShardBytes the size of a shard.
	VolumeBytes, ShardBytes int64
	// Held is how many files the set Tiny has: they are held at once.
	Held int
	// Worker is how many files an epoch has where numbers of workers are compared,
	// WorkerPlain how many of them are read without hints; 0 leaves that out.
	Worker, WorkerPlain int
	// Calls is how many files are announced one by one.
	Calls int
}

func fullTraining() TrainingSizes {
	return TrainingSizes{
		Images: 6_000, LeastCache: 160 << 20, Plain: 720, Inside: 2_400, Volumes: 56, VolumeBytes: volumeBytes, Shards: 16, ShardBytes: 143_439_724,
		Cubes: 400, Held: 10_000, Worker: 2_880, WorkerPlain: 720, Calls: 2_000,
	}
}

func quickTraining() TrainingSizes {
	return TrainingSizes{
		Images: 480, LeastCache: 128 << 20, Plain: 240, Inside: 240, Volumes: 28, VolumeBytes: volumeBytes, Shards: 8, ShardBytes: 22_932_000,
		Cubes: 64, Held: 10_000, Worker: 960, WorkerPlain: 240, Calls: 1_000,
	}
}

func shortTraining() TrainingSizes {
	return TrainingSizes{
		Images: 240, LeastCache: 160 << 20, Plain: 96, Inside: 120, Volumes: 14, VolumeBytes: volumeBytes / 4, Shards: 8, ShardBytes: 11_466_004,
		Cubes: 24, Held: 1_000, Worker: 192, Calls: 100,
	}
}

// volumeBytes is a tenth of those of MLPerf's unet3d, as its compute time here is:
// the rate is the same.
const volumeBytes = 14_660_063

// GrowthSizes are the steps in which each axis grows.
type GrowthSizes struct {
	// Bytes are sizes of an object, Files numbers of files in a directory, Readers are
	// at work at once, Levels are directories above a file.
	Bytes                  [3]int64
	Files, Readers, Levels [3]int
	// Reads is how many small files are read where readers grow.
	Reads int
}

func fullGrowth() GrowthSizes {
	return GrowthSizes{
		Bytes: [3]int64{10 << 20, 100 << 20, 1000 << 20}, Files: [3]int{100, 1_000, 10_000},
		Readers: [3]int{1, 10, 64}, Levels: [3]int{1, 10, 100}, Reads: 640,
	}
}

func shortGrowth() GrowthSizes {
	return GrowthSizes{
		Bytes: [3]int64{2 << 20, 4 << 20, 8 << 20}, Files: [3]int{10, 100, 1_000},
		Readers: [3]int{1, 2, 4}, Levels: [3]int{1, 10, 100}, Reads: 40,
	}
}
