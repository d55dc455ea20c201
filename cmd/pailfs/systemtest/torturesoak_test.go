package systemtest

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cmd/pailfs/systemtest/torture"
)

// The memory that a daemon may take: its tier, as the tests set it, and what it promises to stay
// within beside it.
const (
	memoryTier   = 64 << 20
	memoryBeside = 150 << 20
)

// memory: the daemon is in a cgroup with as much memory as it promises to stay within, and is not
// killed for want of it; or, every other time, with less, and may be.
func (r *round) memory() {
	w, l := r.w, r.everything()
	limit := int64(memoryTier + memoryBeside)
	if r.seed%2 == 1 {
		limit = 48<<20 + r.rng.Int64N(64<<20)
	}
	w.add("data", someSizes(r.rng, 60, 1, 6<<20)...)
	data := w.files[len(w.files)-60:]
	w.faults(slowUploads()...)
	d := w.mount()
	group := r.limited(d, limit)
	l.start()
	j := w.job(r.rng)
	j.Files, j.Readers = data, 6
	readers := j.start(r.t)
	most := int64(0)
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end) && d.running(); time.Sleep(50 * time.Millisecond) {
		most = max(most, d.residentOr0())
	}
	killed := r.spared(d, group, limit)
	if !killed {
		readers.tell()
		l.end()
	} else {
		l.ended()
		r.unmount()
	}
	readers.wait(d).sound(r.t, "with little memory", "SIGBUS")
	r.say("limit %d MiB, at most %d MiB resident, killed %t, %s", limit>>20, most>>20, killed, l.summary())
	if most > memoryTier+memoryBeside {
		r.t.Errorf("%d MiB resident, want at most %d MiB", most>>20, (memoryTier+memoryBeside)>>20)
	}
	switch {
	case killed && (group == nil || group.killed() == 0):
		r.t.Error("the daemon ended")
	case killed && limit == memoryTier+memoryBeside:
		r.t.Error("the daemon was killed for want of memory that it promises not to need")
	case killed:
		r.report.Kills++
		r.report.Pending = l.lacks()
		w.ordered("when killed")
		d = w.mount()
	}
	w.faults()
	r.drained(d, l, "with little memory")
}

// spared takes away a limit that may kill, so that nothing is killed from then on, and reports
// whether the daemon was before.
func (r *round) spared(d *daemon, group *memoryGroup, limit int64) (killed bool) {
	r.t.Helper()
	if group == nil || limit == memoryTier+memoryBeside {
		return !d.running()
	}
	if err := group.lift(); err != nil {
		r.t.Fatal(err)
	}
	if group.killed() == 0 {
		return !d.running()
	}
	until(func() bool { return !d.running() }) // it may still be dying
	return true
}

// limited brings the daemon into a cgroup with so much memory. Without one a round that counts
// fails, and so do the tests of a machine that could have one. On others they do without.
func (r *round) limited(d *daemon, limit int64) *memoryGroup {
	r.t.Helper()
	group, err := newMemoryGroup(r.t, limit, d.cmd.Process.Pid)
	if err == nil {
		return group
	}
	if none := (*noMemoryGroup)(nil); os.Getenv(torture.EnvKind) != "" || !errors.As(err, &none) || none.permitted {
		r.t.Errorf("the memory is not limited: %v", err)
	}
	fmt.Fprintf(os.Stderr, "LEFT OUT of %s: the limit of memory: %v\n", r.t.Name(), err)
	r.say("no cgroup, --memory alone: %v", err)
	return nil
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// soakTime is how long a soak lasts.
func soakTime() time.Duration {
	d, err := time.ParseDuration(os.Getenv(torture.EnvSoak))
	if err != nil {
		return 12 * time.Second
	}
	return d
}

// leastParts is how many parts a soak has at least: a drift has a beginning, a middle and an end.
const leastParts = 3

// soak: a mixed load, after each part of which the daemon is left alone, the kernel's caches are
// dropped, and what the daemon takes up is noted. It does not grow. How long it takes until all is
// published counts as well: it has fewer parts where that takes long.
func (r *round) soak() {
	w := r.w
	disk := newDisk(r.t, "ext4", 2048)
	w.cache = disk.cache
	data := w.add("data", someSizes(r.rng, 80, 1, 4<<20)...)
	d := w.mount("--metadata-ttl=1s", "--cache-size=200MiB")
	began := time.Now()
	each := soakTime() / time.Duration(max(6, int(soakTime()/(10*time.Minute))))
	var done string
	var busy []moment
	for part := 0; part < leastParts || time.Since(began) < soakTime(); part++ {
		l := newLoad(w)
		l.prefix, l.steady = fmt.Sprint("part", part, "-"), true
		r.fill(l)
		l.start()
		j := w.job(r.rng)
		j.Files, j.Readers = data, 3
		readers := j.start(r.t)
		for end := time.Now().Add(each); time.Now().Before(end); time.Sleep(time.Second) {
			busy = append(busy, r.moment(d))
		}
		readers.tell()
		l.end()
		readers.wait(d).sound(r.t, "soaking")
		d.flush()
		l.published("soaking")
		done = l.summary()
		l.remove()
		d.flush()
		sample := r.sample(d, disk, began)
		r.t.Logf("%v; %s", sample, d.heap())
		d.keepHeap(fmt.Sprintf("rest-%02d.pb.gz", part))
		r.report.Samples = append(r.report.Samples, sample)
		if r.t.Failed() {
			break
		}
	}
	r.say("%v in %d parts, the last: %s; the last sample %v", time.Since(began).Round(time.Second), len(r.report.Samples), done,
		r.report.Samples[len(r.report.Samples)-1])
	if err := drift(r.report.Samples, soakTime() < settles); err != nil {
		r.t.Error(err)
		d.dump()
		d.dumpHeap()
	}
	// The samples are of a daemon that rests. What takes memory for seconds shows here alone.
	most := d.mostResident()
	r.say("at most %d MiB resident", most>>20)
	if err := withinMemory(busy, most); err != nil {
		r.t.Error(err)
	}
	d.stop()
}

// pendingBytes is what a change that waits to be published takes of the heap at most:
// TestMemoryOfAPendingChange asserts it.
const pendingBytes = 2560

// moment is what a daemon takes up under load.
type moment struct{ resident, pending int64 }

// bound returns the memory that a daemon may take while that many changes wait.
func (m moment) bound() int64 { return memoryTier + memoryBeside + m.pending*pendingBytes }

func (r *round) moment(d *daemon) moment {
	r.t.Helper()
	before := d.writing().Pending
	m := moment{resident: d.resident()}
	m.pending = int64(max(before, d.writing().Pending))
	return m
}

// withinMemory fails if a daemon took more than it may at one of these moments, or, at most, more
// than while most changes waited.
func withinMemory(busy []moment, most int64) error {
	var peak moment
	for _, m := range busy {
		if m.resident > m.bound() {
			return fmt.Errorf("%d MiB resident while %d changes waited, want at most %d MiB", m.resident>>20, m.pending, m.bound()>>20)
		}
		peak.pending = max(peak.pending, m.pending)
	}
	if most > peak.bound() {
		return fmt.Errorf("%d MiB resident at most, want at most %d MiB with %d changes waiting", most>>20, peak.bound()>>20, peak.pending)
	}
	return nil
}

// sample returns what the daemon takes up when it rests and the kernel remembers nothing: the least
// of what is seen in a while, for connections end and memory is given back when they like.
func (r *round) sample(d *daemon, disk *disk, began time.Time) torture.Sample {
	r.t.Helper()
	unix.Sync()
	_ = os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0o200) // in a container it may be refused: then the bounds have to do
	time.Sleep(r.rests())
	least := torture.Sample{Resident: math.MaxInt64, Descriptors: math.MaxInt, Goroutines: math.MaxInt, Connections: math.MaxInt, DiskBytes: math.MaxInt64, DiskInodes: math.MaxInt64, Inodes: math.MaxInt64}
	for range 20 {
		time.Sleep(100 * time.Millisecond)
		var st unix.Statfs_t
		if err := unix.Statfs(disk.dir, &st); err != nil {
			r.t.Fatal(err)
		}
		if resident := d.resident(); resident < least.Resident {
			least.Resident = resident
			least.Anonymous, least.File = d.memory("RssAnon"), d.memory("RssFile")+d.memory("RssShmem")
		}
		least.Connections = min(least.Connections, d.connections())
		least.Descriptors = min(least.Descriptors, d.descriptors())
		least.Goroutines = min(least.Goroutines, d.goroutines())
		least.DiskBytes = min(least.DiskBytes, int64(st.Blocks-st.Bfree)*st.Bsize)
		least.DiskInodes = min(least.DiskInodes, int64(st.Files-st.Ffree))
		s := d.status()
		least.Inodes = min(least.Inodes, s.FileSystem.Inodes)
		least.Tier = s.Cache.Memory.Used
	}
	least.After = time.Since(began).Seconds()
	return least
}

// rests is how long the daemon is left alone before it is looked at. What a peak took it gives back
// within half a minute; a short soak, whose memory is not compared, does not wait for that.
func (r *round) rests() time.Duration {
	if soakTime() < settles {
		return 0
	}
	return 30 * time.Second
}

// settles is how long a soak has to be for its first third to have filled memory and disk.
const settles = 30 * time.Minute

// drift fails if the last third of the samples takes up more than the first did, by more than
// what comes and goes. Memory is that beside the memory tier, which has a size of its own. In a short soak memory, disk and the pool of connections are still being
// filled, each of which costs a descriptor and two goroutines.
func drift(samples []torture.Sample, short bool) error {
	third := (len(samples) + 2) / 3
	var wrong []error
	for _, m := range []struct {
		name string
		of   func(torture.Sample) int64
		by   int64
		// fills says that it grows until it has the size that it is given.
		fills bool
	}{
		{"bytes resident", func(s torture.Sample) int64 { return s.Resident - s.Tier }, 32 << 20, true},
		{"descriptors", func(s torture.Sample) int64 { return int64(s.Descriptors - s.Connections) }, 50, false},
		{"goroutines", func(s torture.Sample) int64 { return int64(s.Goroutines - 2*s.Connections) }, 80, false},
		{"connections", func(s torture.Sample) int64 { return int64(s.Connections) }, 50, true},
		{"bytes on the disk", func(s torture.Sample) int64 { return s.DiskBytes }, 64 << 20, true},
		{"inodes on the disk", func(s torture.Sample) int64 { return s.DiskInodes }, 200, true},
		{"inodes known", func(s torture.Sample) int64 { return s.Inodes }, 200, false},
	} {
		if short && m.fills {
			continue
		}
		var first int64
		last := int64(math.MaxInt64)
		for _, s := range samples[:third] {
			first = max(first, m.of(s))
		}
		for _, s := range samples[len(samples)-third:] {
			last = min(last, m.of(s))
		}
		if last > first+m.by {
			wrong = append(wrong, fmt.Errorf("%s: at most %d in the first third, at least %d in the last", m.name, first, last))
		}
	}
	for _, s := range samples {
		if s.Resident > memoryTier+memoryBeside {
			wrong = append(wrong, fmt.Errorf("%d MiB resident, want at most %d MiB", s.Resident>>20, (memoryTier+memoryBeside)>>20))
		}
	}
	return errors.Join(wrong...)
}

// soaked returns the samples of a soak in which one thing takes up more with each part.
func soaked(parts int, grow func(s *torture.Sample, part int64)) []torture.Sample {
	var samples []torture.Sample
	for i := range int64(parts) {
		comes := i * 7 % 5 // and goes
		s := torture.Sample{
			Resident: 90<<20 + comes<<20, Descriptors: int(80 + comes), Goroutines: int(160 + 4*comes),
			DiskBytes: 140<<20 - comes<<23, DiskInodes: 300 - 10*comes, Inodes: 1 + comes,
		}
		grow(&s, i)
		samples = append(samples, s)
	}
	return samples
}

func TestDriftIsFound(t *testing.T) {
	for name, grow := range map[string]func(s *torture.Sample, part int64){
		"bytes resident": func(s *torture.Sample, part int64) { s.Resident += part * 10 << 20 },
		"descriptors":    func(s *torture.Sample, part int64) { s.Descriptors += int(part * 20) },
		"goroutines":     func(s *torture.Sample, part int64) { s.Goroutines += int(part * 30) },
		"connections": func(s *torture.Sample, part int64) {
			s.Connections += int(part * 20)
			s.Descriptors += int(part * 20)
			s.Goroutines += int(part * 40)
		},
		"bytes on the disk":  func(s *torture.Sample, part int64) { s.DiskBytes += part * 32 << 20 },
		"inodes on the disk": func(s *torture.Sample, part int64) { s.DiskInodes += part * 80 },
		"inodes known":       func(s *torture.Sample, part int64) { s.Inodes += part * 60 },
	} {
		samples := soaked(12, grow)
		err := drift(samples, false)
		if err == nil || !strings.HasPrefix(err.Error(), name+":") || strings.Contains(err.Error(), "\n") {
			t.Errorf("that %s grow gave %v", name, err)
		}
	}
	for name, grow := range map[string]func(s *torture.Sample, part int64){
		"what comes and goes": func(*torture.Sample, int64) {},
		"that the memory tier fills up": func(s *torture.Sample, part int64) {
			s.Tier = 16<<20 + part/6*(40<<20)
			s.Resident += s.Tier
		},
	} {
		if err := drift(soaked(12, grow), false); err != nil {
			t.Errorf("%s was taken for a drift: %v", name, err)
		}
	}
	once := soaked(12, func(s *torture.Sample, part int64) {
		if part == 5 {
			s.Resident = memoryTier + memoryBeside + 1
		}
	})
	if drift(once, true) == nil {
		t.Error("a sample beyond what is promised was not found")
	}
}

func TestMemoryBesideWhatWaitsIsFound(t *testing.T) {
	const promised = memoryTier + memoryBeside
	steady := []moment{{120 << 20, 0}, {promised + 20<<20, 9200}, {130 << 20, 100}}
	if err := withinMemory(steady, promised+20<<20); err != nil {
		t.Error(err)
	}
	if withinMemory(append(steady, moment{promised + 20<<20, 100}), promised+20<<20) == nil {
		t.Error("memory was not found that was taken when little waited")
	}
	if withinMemory(steady, 361<<20) == nil {
		t.Error("the most memory was not found")
	}
	if withinMemory(nil, promised+1) == nil {
		t.Error("memory was not found of a daemon for which nothing waited")
	}
}
