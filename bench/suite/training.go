package suite

import (
	"math/rand/v2"

	"github.com/pailfs/pailfs/bench/dataset"
	"github.com/pailfs/pailfs/bench/reader"
	"github.com/pailfs/pailfs/bench/result"
	"github.com/pailfs/pailfs/bench/rig"
)

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

// The data sets of training.
const (
	// Images are files of the size of JPEGs, 1,000 to a directory.
	Images Set = "images"
	// InCache are as many of them as a cache holds.
	InCache Set = "incache"
	// Volumes are archives of varying size, each a sample.
	Volumes Set = "volumes"
	// Shards are large files of many records.
	Shards Set = "shards"
	// Cubes are files of some megabytes, each a sample.
	Cubes Set = "cubes"
	// Tiny are very small files.
	Tiny Set = "tiny"
)

const (
	imageBytes = 322_957
	cubeBytes  = 2_828_486
	tinyBytes  = 4_096
	// recordBytes is a record of a shard: a picture of about 114,660 bytes.
	recordBytes = 114_660
	// volumeBytes is a tenth of those of MLPerf's unet3d, as its compute time here is:
	// the rate is the same.
	volumeBytes = 14_660_063
	// lookahead is how many files are announced ahead, as PreloadingSampler does.
	lookahead = 4096
	// bareGets is how many requests a bare client that knows the order has under way.
	bareGets = 64
)

// makeTraining describes the files of a set of training, nil if it is none.
func (s Sizes) makeTraining(set Set) *dataset.Manifest {
	t := s.Training
	switch set {
	case Images:
		return dataset.Small(string(set), 21, t.Images, imageBytes, 1000)
	case InCache:
		return dataset.Small(string(set), 22, t.Inside, imageBytes, 1000)
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
		return dataset.Big(string(set), 24, t.Shards, t.ShardBytes/recordBytes*recordBytes)
	case Cubes:
		return dataset.Big(string(set), 25, t.Cubes, cubeBytes)
	case Tiny:
		return dataset.Small(string(set), 26, t.Held, tinyBytes, 1000)
	default:
		return nil
	}
}

// imageCache is a tenth of the images.
func (s Sizes) imageCache() int64 {
	return max(int64(s.Training.Images)*imageBytes/10, s.Training.LeastCache)
}

// trainings are the workloads of training.
func trainings(s Sizes) []Workload {
	job := func(readers int, t reader.Training) reader.Job {
		t.Lookahead = lookahead
		return reader.Job{
			Pattern: reader.Train, Readers: readers, BlockBytes: 1 << 20, Check: reader.Bytes, Order: 13, List: true, Training: &t,
		}
	}
	images := reader.Training{Batch: 24, Compute: 0.04755}
	workloads := []Workload{
		{
			Name: "train/retinanet", Help: "JPEG-sized files in random order, batches of 24, 2 readers; a cache of a tenth of the set",
			Set: Images, State: Cold, Job: job(2, images), Profile: "seed", CacheBytes: s.imageCache(),
		},
		{
			Name: "train/retinanet-again", Help: "the same when the cache on SSD holds the whole set, page cache dropped",
			Set: InCache, State: OnSSD, Job: job(2, images), Profile: "seed",
		},
		{
			Name: "train/unet3d", Help: "archives of 2 to 44 MB in random order, batches of 7, 4 readers",
			Set: Volumes, State: Cold, Job: job(4, reader.Training{Batch: 7, Compute: 0.0323, Directory: true, Ahead: 1}), Profile: "seed",
		},
		{
			Name: "train/resnet50", Help: "8 readers go through shards of 1,251 pictures each, batches of 400",
			Set: Shards, State: Cold, Job: job(8, reader.Training{Batch: 400, Compute: 0.224, Records: int(s.Training.ShardBytes / recordBytes), RecordBytes: recordBytes}), Profile: "seed",
		},
		{
			Name: "train/cosmoflow", Help: "files of 2.8 MB in random order, one a step, 4 readers",
			Set: Cubes, State: Cold, Job: job(4, reader.Training{Batch: 1, Compute: 0.0035}), Profile: "seed",
		},
	}
	for i := range workloads {
		workloads[i].Metric, workloads[i].pieces = result.Utilisation, 1
	}
	return workloads
}

// withHints lets the client be told what comes, if it is pailfs.
func withHints(d rig.Driver, label string) Subject {
	s := Subject{Driver: d, Label: label}
	if _, ours := d.(rig.Pailfs); ours {
		s.Adjust = training(func(t *reader.Training) { t.Hints = true })
	}
	return s
}

// bareAhead is the bare client that knows what comes: what the link allows.
func bareAhead() Subject {
	return Subject{
		Driver: rig.Bare{}, Label: "bare, 64 ahead",
		Adjust: training(func(t *reader.Training) { t.Gets = bareGets }),
	}
}

// training changes how a job trains, without touching what other clients share.
func training(change func(t *reader.Training)) func(*reader.Job) {
	return func(job *reader.Job) {
		if job.Training != nil {
			t := *job.Training
			change(&t)
			job.Training = &t
		}
	}
}

// SubjectOf is a client as it takes part in a comparison at w: pailfs is told what
// comes, others cannot be.
func SubjectOf(d rig.Driver, w Workload) Subject {
	switch {
	case w.Job.Pattern != reader.Train:
		return Subject{Driver: d}
	case d.Name() == (rig.Bare{}).Name():
		return bareAhead()
	default:
		return withHints(d, "")
	}
}
