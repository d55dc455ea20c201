package train

import (
	"math/rand/v2"

	"github.com/pailfs/pailfs/bench/dataset"
	"github.com/pailfs/pailfs/bench/reader"
	"github.com/pailfs/pailfs/bench/result"
	"github.com/pailfs/pailfs/bench/workload"
)

// The data sets of training.
const (
	// Images are files of the size of JPEGs, 1,000 to a directory.
	Images workload.Set = "images"
	// InCache are as many of them as a cache holds.
	InCache workload.Set = "incache"
	// Volumes are archives of varying size, each a sample.
	Volumes workload.Set = "volumes"
	// Shards are large files of many records.
	Shards workload.Set = "shards"
	// Cubes are files of some megabytes, each a sample.
	Cubes workload.Set = "cubes"
	// Tiny are very small files.
	Tiny workload.Set = "tiny"
)

const (
	cubeBytes = 2_828_486
	tinyBytes = 4_096
	// ImageBytes is the size of each image.
	ImageBytes = 322_957
	// RecordBytes is a record of a shard: a picture of about 114,660 bytes.
	RecordBytes = 114_660
	// Lookahead is how many files are announced ahead, as PreloadingSampler does.
	Lookahead = 4096
)

// Files describes the files of a set of training, nil if it is none.
func Files(s workload.Sizes, set workload.Set) *dataset.Manifest {
	t := s.Training
	switch set {
	case Images:
		return dataset.Small(string(set), 21, t.Images, ImageBytes, 1000)
	case InCache:
		return dataset.Small(string(set), 22, t.Inside, ImageBytes, 1000)
	case Volumes:
		m := dataset.Big(string(set), 23, t.Volumes, 0)
		random := rand.New(rand.NewPCG(23, 0))
		for i := range m.Files {
			// MLPerf's standard deviation, cut off at a seventh and at thrice the mean.
			size := t.VolumeBytes + int64(0.466*random.NormFloat64()*float64(t.VolumeBytes))
			m.Files[i].Size = min(max(size, t.VolumeBytes/7), 3*t.VolumeBytes)
		}
		return m
	case Shards:
		return dataset.Big(string(set), 24, t.Shards, t.ShardBytes/RecordBytes*RecordBytes)
	case Cubes:
		return dataset.Big(string(set), 25, t.Cubes, cubeBytes)
	case Tiny:
		return dataset.Small(string(set), 26, t.Held, tinyBytes, 1000)
	default:
		return nil
	}
}

// ImageCache is a tenth of the images.
func ImageCache(s workload.Sizes) int64 {
	return max(int64(s.Training.Images)*ImageBytes/10, s.Training.LeastCache)
}

// Workloads are the workloads of training.
func Workloads(s workload.Sizes) []workload.Workload {
	job := func(readers int, t reader.Training) reader.Job {
		t.Lookahead = Lookahead
		return reader.Job{
			Pattern: reader.Train, Readers: readers, BlockBytes: 1 << 20, Check: reader.Bytes, Order: 13, List: true, Training: &t,
		}
	}
	images := reader.Training{Batch: 24, Compute: 0.04755}
	workloads := []workload.Workload{
		{
			Name: "train/retinanet", Help: "JPEG-sized files in random order, batches of 24, 2 readers; a cache of a tenth of the set",
			Set: Images, State: workload.Cold, Job: job(2, images), Profile: "seed", CacheBytes: ImageCache(s),
		},
		{
			Name: "train/retinanet-again", Help: "the same when the cache on SSD holds the whole set, page cache dropped",
			Set: InCache, State: workload.OnSSD, Job: job(2, images), Profile: "seed",
		},
		{
			Name: "train/unet3d", Help: "archives of 2 to 44 MB in random order, batches of 7, 4 readers",
			Set: Volumes, State: workload.Cold, Job: job(4, reader.Training{Batch: 7, Compute: 0.0323, Directory: true, Ahead: 1}), Profile: "seed",
		},
		{
			Name: "train/resnet50", Help: "8 readers go through shards of 1,251 pictures each, batches of 400",
			Set: Shards, State: workload.Cold, Job: job(8, reader.Training{Batch: 400, Compute: 0.224, Records: int(s.Training.ShardBytes / RecordBytes), RecordBytes: RecordBytes}), Profile: "seed",
		},
		{
			Name: "train/cosmoflow", Help: "files of 2.8 MB in random order, one a step, 4 readers",
			Set: Cubes, State: workload.Cold, Job: job(4, reader.Training{Batch: 1, Compute: 0.0035}), Profile: "seed",
		},
	}
	for i := range workloads {
		workloads[i].Metric, workloads[i].Pieces = result.Utilisation, 1
	}
	return workloads
}
