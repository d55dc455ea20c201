package write

import (
	"fmt"

	"github.com/pailfs/pailfs/bench/result"
	"github.com/pailfs/pailfs/bench/workload"
	"github.com/pailfs/pailfs/bench/writer"
)

// Workloads returns the workloads that write.
func Workloads(s workload.Sizes) []workload.Workload {
	checkpoint := func(files int) []writer.File { return shards(files, s.CheckpointBytes) }
	tiny := make([]writer.File, s.TinyFiles)
	for i := range tiny {
		tiny[i] = writer.File{Name: fmt.Sprintf("d%03d/f%05d", i/100, i), Size: s.TinyBytes}
	}
	return []workload.Workload{
		{
			Name: "write/ckpt", Help: "one writer writes a checkpoint, syncs and closes it; then until it is in the bucket", Metric: result.BytesPerSecond,
			Profile: "seed", Upload: link,
			Task: &workload.Task{Job: writer.Job{Pattern: writer.Stream, Files: checkpoint(1), Writers: 1}, Restore: true},
		},
		{
			Name: "write/ckpt-8", Help: "the same by eight writers, a file each", Metric: result.BytesPerSecond, Profile: "seed", Upload: link,
			Task: &workload.Task{Job: writer.Job{Pattern: writer.Stream, Files: checkpoint(8), Writers: 8}},
		},
		{
			Name: "write/ckpt-stall", Help: "how long torch.save takes, again and again, while what was saved before is uploaded: the mean", Metric: result.Seconds,
			Profile: "seed", Upload: link,
			Task: &workload.Task{Save: &workload.Saving{Bytes: s.SaveBytes, Rounds: s.SaveRounds, Every: s.SaveEvery.Seconds(), Keep: savesKept}},
		},
		{
			Name: "write/append", Help: "open a log that is in the bucket, append to it and close it: the median", Metric: result.Seconds, Profile: "seed", Upload: link,
			Task: &workload.Task{Exists: true, Job: writer.Job{
				Pattern: writer.Append, Files: []writer.File{{Name: "train.log", Size: s.LogBytes}}, Writers: 1,
				AppendBytes: s.AppendBytes, Rounds: s.AppendRounds,
			}},
		},
		{
			Name: "write/small", Help: "four processes create many small files; then until they are in the bucket", Metric: result.FilesPerSecond, Profile: "seed", Upload: link,
			Task: &workload.Task{Job: writer.Job{Pattern: writer.Small, Files: tiny, Writers: 4}},
		},
		{
			Name: "read/mmap-model", Help: "map a large file of a client that was just started, and copy it out tensor by tensor", Metric: result.BytesPerSecond,
			Profile: "seed",
			Task:    &workload.Task{Exists: true, Job: writer.Job{Pattern: writer.Map, Files: []writer.File{{Name: "model.safetensors", Size: s.ModelBytes}}, Writers: 1}},
		},
		{
			Name: "restore", Help: "read a checkpoint that was just written", Metric: result.BytesPerSecond, Profile: "seed", Upload: link,
			Task: &workload.Task{Job: writer.Job{Pattern: writer.Stream, Files: checkpoint(1), Writers: 1}, Restore: true, Only: true},
		},
	}
}

const (
	// link is the link of the workloads that write.
	link = "600MB"
	// savesKept is how many checkpoints are kept beside the one that is written.
	savesKept = 1
)

// shards are files that are size bytes together.
func shards(n int, size int64) []writer.File {
	files := make([]writer.File, n)
	for i := range files {
		files[i] = writer.File{Name: fmt.Sprintf("shard-%d.bin", i), Size: size / int64(n)}
	}
	return files
}
