package systemtest

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cmd/pailfs/systemtest/torture"
	"github.com/pailfs/pailfs/oss/ossemu"
)

// round is one round of torture.
type round struct {
	t    *testing.T
	w    *world
	seed uint64
	// rng is all the chance there is in it, but for what the machine does.
	rng    *rand.Rand
	report torture.Report
}

// kinds of rounds, by name.
var kinds = map[string]func(*round){
	torture.Kills: (*round).kills, torture.Power: (*round).power, torture.Failing: (*round).failing, torture.Disk: (*round).disk,
	torture.Memory: (*round).memory, torture.Editing: (*round).editing, torture.Soak: (*round).soak,
}

// TestTorture runs some rounds of each kind, or the one that the environment names, see
// package torture. `make torture` runs a thousand.
func TestTorture(t *testing.T) {
	if kind := os.Getenv(torture.EnvKind); kind != "" {
		seed, err := strconv.ParseUint(os.Getenv(torture.EnvSeed), 10, 64)
		if err != nil || kinds[kind] == nil {
			t.Fatalf("%s=%q, %s=%q: want a kind and its seed", torture.EnvKind, kind, torture.EnvSeed, os.Getenv(torture.EnvSeed))
		}
		runRound(t, kind, seed)
		return
	}
	for _, kind := range torture.Kinds() {
		if kind.Of != nil {
			continue // its package has it
		}
		t.Run(kind.Name, func(t *testing.T) {
			for seed := range uint64(fewRounds(kind.Name)) {
				t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { runRound(t, kind.Name, seed) })
			}
		})
	}
}

// fewRounds is how many rounds of a kind the tests run: each way of a kind once.
func fewRounds(kind string) int {
	switch kind {
	case torture.Kills, torture.Power, torture.Disk:
		return 3
	default:
		return 1
	}
}

// runRound runs a round, and reports it if it is asked for that.
func runRound(t *testing.T, kind string, seed uint64) {
	t.Helper()
	h := fnv.New64a()
	_, _ = h.Write([]byte(kind)) // a hash takes everything
	r := &round{t: t, w: newWorld(t), seed: seed, rng: rand.New(rand.NewPCG(seed, h.Sum64()))}
	defer r.tell(kind)
	defer r.watch(torture.Limit(kind, soakTime())).Stop()
	kinds[kind](r)
}

// watch ends a round that hangs: it shows what every goroutine does, here and in the daemons,
// and takes the mount away from who waits for it.
func (r *round) watch(limit time.Duration) *time.Timer {
	return time.AfterFunc(limit, func() {
		r.t.Errorf("the round hangs")
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 2)
		for _, d := range r.w.daemons {
			if d.running() {
				_ = d.cmd.Process.Signal(unix.SIGQUIT) // it tells its stacks in its log, and ends
			}
		}
	})
}

// tell writes the report to where the environment wants it.
func (r *round) tell(kind string) {
	r.t.Logf("%s seed %d: %s", kind, r.seed, r.report.What)
	path := os.Getenv(torture.EnvReport)
	if path == "" {
		return
	}
	text, err := json.Marshal(r.report)
	if err == nil {
		err = os.WriteFile(path, text, 0o644)
	}
	if err != nil {
		r.t.Error(err)
	}
}

// say adds to what happened.
func (r *round) say(format string, args ...any) {
	if r.report.What != "" {
		r.report.What += "; "
	}
	r.report.What += fmt.Sprintf(format, args...)
}

// milliseconds is a time below most.
func (r *round) milliseconds(most int) time.Duration {
	return time.Duration(r.rng.IntN(most)) * time.Millisecond
}

// way is how a daemon is started.
func (r *round) way() (env, flags []string) {
	switch r.rng.IntN(8) {
	case 0:
		return []string{"GOMAXPROCS=1"}, nil
	case 1:
		return nil, []string{"--passthrough=off"}
	case 2:
		return nil, []string{"--attrs=none"}
	case 3:
		return nil, []string{"--upload-bandwidth=20MiB"}
	default:
		return nil, nil
	}
}

// slowUploads are faults for which what is written is not in the bucket at once.
func slowUploads() []ossemu.Fault {
	return []ossemu.Fault{
		{Operation: "PutObject", Kind: ossemu.FaultSlowFirstByte, Delay: 30 * time.Millisecond},
		{Operation: "UploadPart", Kind: ossemu.FaultSlowFirstByte, Delay: 30 * time.Millisecond},
	}
}

// everything is a load of all kinds of programs.
func (r *round) everything() *load {
	l := newLoad(r.w)
	r.fill(l)
	return l
}

// fill gives a load programs of all kinds.
func (r *round) fill(l *load) {
	l.trainers(2)
	l.editors(r.rng, 2, 2, 8<<20, 12<<20)
	l.rewriters(r.rng, 1, 32<<20)
	l.appenders(r.rng, 1)
	l.movers(r.rng, 1)
}

// cut sees to it, every fourth time, that something is acknowledged that is not in the bucket:
// from now on nothing reaches that, and the programs go on until they are told of something.
func (r *round) cut(l *load) {
	if r.seed%4 != 0 {
		return
	}
	r.w.faults(ossemu.Fault{Kind: ossemu.FaultReset})
	before := l.acknowledged()
	for end := time.Now().Add(20 * time.Second); l.acknowledged() == before && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
	}
}

// killed kills the daemon, waits until who wrote has noticed, and takes the mount away.
func (r *round) killed(d *daemon, l *load) {
	d.kill()
	r.report.Kills++
	l.ended()
	r.unmount()
}

// unmount takes away what a killed daemon has left.
func (r *round) unmount() {
	for unix.Unmount(r.w.at, unix.MNT_DETACH) == nil {
	}
}

// drained lets everything be published, and fails unless it is and the daemon ends well.
func (r *round) drained(d *daemon, l *load, when string) {
	r.t.Helper()
	d.flush()
	l.published(when)
	s := d.writing()
	if len(s.Suspects)+len(s.Conflicts) > 0 {
		r.t.Errorf("%s: suspects %v, conflicts %v", when, s.Suspects, s.Conflicts)
	}
	d.stop()
}

// kills: the daemon is killed at a random instant while programs write, and perhaps again while
// it recovers. What was acknowledged is published by the next one, from the same cache directory,
// which may have lost its index or lie elsewhere.
func (r *round) kills() {
	w, l := r.w, r.everything()
	w.add("data", someSizes(r.rng, 6, 1, 3<<20)...)
	w.faults(slowUploads()...)
	env, flags := r.way()
	d := w.mountWith(env, flags...)
	l.start()
	j := w.job(r.rng)
	j.Files, j.Readers = w.files[len(w.files)-6:], 2
	readers := j.start(r.t)
	at := r.milliseconds(2000)
	time.Sleep(at)
	r.cut(l)
	r.killed(d, l)
	readers.wait(d).sound(r.t, "while being killed", "SIGBUS")
	r.say("killed after %v, %s", at, l.summary())
	w.ordered("when killed")
	r.report.Pending = l.lacks()
	r.moveCache()
	if r.rng.IntN(4) == 0 {
		again := r.milliseconds(500)
		d = w.start(w.at, w.cache, env, flags...)
		time.Sleep(again)
		d.kill()
		r.unmount()
		r.report.Kills++
		r.say("again after %v", again)
		w.ordered("when killed again")
	}
	w.faults()
	d = w.mountWith(env, flags...)
	r.drained(d, l, "after the kill")
}

// moveCache leaves the cache directory as it is, takes its index away, or moves it.
func (r *round) moveCache() {
	switch r.seed % 3 {
	case 1:
		if err := os.Remove(filepath.Join(r.w.cache, "index.db")); err != nil && !os.IsNotExist(err) {
			r.t.Fatal(err)
		}
	case 2:
		moved := r.w.cache + "-moved"
		if err := os.Rename(r.w.cache, moved); err != nil {
			r.t.Fatal(err)
		}
		r.w.cache = moved
	}
}

// failing: a fifth of all requests fails, in all ways there are. Programs read right bytes, or an
// error; when it is over, everything is published. Every other time the daemon is killed in the
// midst of it.
func (r *round) failing() {
	w, l := r.w, r.everything()
	w.add("data", someSizes(r.rng, 10, 1, 6<<20)...)
	data := w.files[len(w.files)-10:]
	d := w.mount("--metadata-ttl=1s")
	l.start()
	w.faults(thirteenWays(r.rng)...)
	w.Server.ResetStats()
	j := w.job(r.rng)
	j.Files, j.Readers, j.Doubtful = data, 2, true
	readers := j.start(r.t)
	time.Sleep(2*time.Second + r.milliseconds(2000))
	until(func() bool { s := w.Server.Stats(); return len(s.Faults) == ways && s.Requests >= manyRequests })
	r.struck(w.Server.Stats())
	kill := r.seed%2 == 1
	if kill {
		r.killed(d, l)
	} else {
		l.end()
		readers.tell()
	}
	readers.wait(d).sound(r.t, "while requests fail", "EIO", "EACCES", "ESTALE", "SIGBUS")
	r.report.Pending = l.lacks()
	r.say("killed %t, %s", kill, l.summary())
	if kill {
		d = w.mount("--metadata-ttl=1s") // it recovers while requests fail
	}
	w.faults()
	r.drained(d, l, "after the failures")
}

// manyRequests are so many that their fifth has room for all the ways in which requests fail.
const manyRequests, ways = 300, 13

// struck fails unless each of the thirteen ways was met, and a fifth of the requests or so failed.
// A connection that is left unserved for a while is no request.
func (r *round) struck(s ossemu.Stats) {
	r.t.Helper()
	failed := -s.Faults[ossemu.FaultSlowAccept]
	for _, n := range s.Faults {
		failed += n
	}
	all := s.Requests + s.InFlight // a fault is counted before its request is answered
	r.say("%d of %d requests failed in %d ways", failed, all, len(s.Faults))
	if len(s.Faults) != ways {
		r.t.Errorf("requests failed in %d ways, want %d: %v", len(s.Faults), ways, s.Faults)
	}
	if failed*10 < all || failed*10 > 3*all {
		r.t.Errorf("%d of %d requests failed, want 10 to 30 %%: %v", failed, all, s.Faults)
	}
}

// thirteenWays are faults of which about a fifth of all requests suffers one: each way once among
// the first requests, then by chance. The emulator draws for each place in the list: another order
// is other draws.
func thirteenWays(rng *rand.Rand) []ossemu.Fault {
	// What matches nothing else comes first of those before it: twelve times this is nearly a fifth.
	const each = 0.015
	// Ranges of large objects that were not asked for by a reader of all rely on TLS.
	const checked = "data/"
	byChance := []ossemu.Fault{
		{Kind: ossemu.FaultSlowAccept, Delay: 200 * time.Millisecond, Probability: 0.2},
		{Kind: ossemu.FaultError, Code: "InternalError", Probability: each},
		{Kind: ossemu.FaultReset, Probability: each},
		{Kind: ossemu.FaultResetBody, Probability: each},
		{Kind: ossemu.FaultTruncate, Probability: each},
		{Kind: ossemu.FaultStall, Delay: 500 * time.Millisecond, Probability: each},
		{Kind: ossemu.FaultSlowFirstByte, Delay: 500 * time.Millisecond, Probability: each},
		{Operation: "GetObject", KeyPrefix: checked, Kind: ossemu.FaultCorrupt, Probability: each},
		{Operation: "GetObject", Kind: ossemu.FaultWrongCRC, Probability: each},
		{Operation: "GetObject", Kind: ossemu.FaultWrongETag, Probability: each},
		{Kind: ossemu.FaultStaleList, Delay: time.Second, Probability: 0.1},
		{Kind: ossemu.FaultErrorAfterCommit, Code: "InternalError", Probability: each},
		{Kind: ossemu.FaultLostReply, Probability: each},
		{Kind: ossemu.FaultError, Code: "QpsLimitExceeded", Probability: 4 * each},
	}
	rng.Shuffle(len(byChance), func(i, j int) { byChance[i], byChance[j] = byChance[j], byChance[i] })
	var all []ossemu.Fault
	for i, f := range byChance {
		f.Probability, f.Count = 0, 1
		switch f.Kind {
		case ossemu.FaultResetBody, ossemu.FaultTruncate, ossemu.FaultStall: // what has a body
			f.Operation = "GetObject"
		case ossemu.FaultErrorAfterCommit, ossemu.FaultLostReply: // what changes something
			f.Operation = "PutObject"
		case ossemu.FaultError, ossemu.FaultReset, ossemu.FaultSlowFirstByte:
			f.Skip = 4 * i // or the first requests fail all
		}
		all = append(all, f)
	}
	for _, f := range byChance {
		if f.Operation == "" && f.Kind != ossemu.FaultSlowAccept && f.Kind != ossemu.FaultStaleList {
			f.Skip = manyRequests / 6 // by then each way has struck
		}
		all = append(all, f)
	}
	return all
}

// editing: files are rewritten, truncated and edited faster than they are uploaded. No call fails,
// nothing counts as failing, and in the end the bucket has what was written.
func (r *round) editing() {
	w, l := r.w, newLoad(r.w)
	l.steady = true
	l.rewriters(r.rng, 3, 128<<20)
	l.editors(r.rng, 1, 2, 8<<20, 12<<20)
	l.appenders(r.rng, 1)
	w.faults(slowUploads()...)
	env, flags := r.way()
	d := w.mountWith(env, flags...)
	l.start()
	time.Sleep(3*time.Second + r.milliseconds(2000))
	l.end()
	r.say("%s", l.summary())
	r.report.Pending = l.lacks()
	if s := d.writing(); s.Failures > 0 || len(s.Failing) > 0 {
		r.t.Errorf("files that change while they are sent are taken for failures: %d failures, failing %v", s.Failures, s.Failing)
	}
	w.faults()
	r.drained(d, l, "after editing")
}
