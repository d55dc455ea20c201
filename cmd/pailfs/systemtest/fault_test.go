package systemtest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pailfs/pailfs/oss/ossemu"
)

// trouble is how the store misbehaves for a while, and which errors that may
// cause. What can be repeated must be: it may cause none.
type trouble struct {
	name      string
	faults    []ossemu.Fault
	tolerated string
	doubtful  bool
}

// troubles are all kinds.
func troubles() []trouble {
	get := func(f ossemu.Fault) ossemu.Fault {
		f.Operation = "GetObject"
		return f
	}
	one := func(name, tolerated string, f ossemu.Fault) trouble {
		return trouble{
			name: name, faults: []ossemu.Fault{get(f)}, tolerated: tolerated,
			doubtful: f.Kind == ossemu.FaultCorrupt,
		}
	}
	return []trouble{
		one("server errors", "", ossemu.Fault{Kind: ossemu.FaultError, Code: "InternalError", Probability: 0.2}),
		one("throttling", "", ossemu.Fault{Kind: ossemu.FaultError, Code: "QpsLimitExceeded", Probability: 0.1}),
		one("refusals", "EACCES SIGBUS", ossemu.Fault{Kind: ossemu.FaultError, Code: "AccessDenied", Probability: 0.2}),
		one("objects that seem gone", "ESTALE SIGBUS", ossemu.Fault{Kind: ossemu.FaultError, Code: "NoSuchKey", Probability: 0.2}),
		one("objects that seem replaced", "ESTALE SIGBUS", ossemu.Fault{Kind: ossemu.FaultError, Code: "PreconditionFailed", Probability: 0.2}),
		one("nonsense", "EIO SIGBUS", ossemu.Fault{Kind: ossemu.FaultError, Code: "Teapot", Status: 418, Probability: 0.2}),
		one("redirects", "EIO SIGBUS", ossemu.Fault{Kind: ossemu.FaultError, Code: "Elsewhere", Status: 302, Probability: 0.2}),
		one("resets", "", ossemu.Fault{Kind: ossemu.FaultReset, Probability: 0.2}),
		one("resets in the middle", "", ossemu.Fault{Kind: ossemu.FaultResetBody, Probability: 0.3}),
		one("resets near the beginning", "", ossemu.Fault{Kind: ossemu.FaultResetBody, Bytes: 1, Probability: 0.2}),
		one("bodies cut off", "", ossemu.Fault{Kind: ossemu.FaultTruncate, Probability: 0.3}),
		one("bodies cut off late", "", ossemu.Fault{Kind: ossemu.FaultTruncate, Bytes: 70_001, Probability: 0.3}),
		one("stalls", "", ossemu.Fault{Kind: ossemu.FaultStall, Delay: 5 * time.Second, Probability: 0.05}),
		one("late answers", "", ossemu.Fault{Kind: ossemu.FaultSlowFirstByte, Delay: 2 * time.Second, Probability: 0.05}),
		one("damaged bodies", "EIO SIGBUS", ossemu.Fault{Kind: ossemu.FaultCorrupt, Probability: 0.3}),
		one("damaged bodies always", "EIO SIGBUS", ossemu.Fault{Kind: ossemu.FaultCorrupt}),
		one("wrong checksums", "EIO SIGBUS", ossemu.Fault{Kind: ossemu.FaultWrongCRC, Probability: 0.3}),
		one("wrong checksums always", "EIO SIGBUS", ossemu.Fault{Kind: ossemu.FaultWrongCRC}),
		one("wrong tags", "ESTALE SIGBUS", ossemu.Fault{Kind: ossemu.FaultWrongETag, Probability: 0.3}),
		one("wrong tags always", "ESTALE SIGBUS", ossemu.Fault{Kind: ossemu.FaultWrongETag}),
		one("work done and not acknowledged", "", ossemu.Fault{Kind: ossemu.FaultErrorAfterCommit, Code: "InternalError", Probability: 0.2}),
		one("answers lost", "", ossemu.Fault{Kind: ossemu.FaultLostReply, Probability: 0.2}),
		{name: "slow connections", faults: []ossemu.Fault{{Kind: ossemu.FaultSlowAccept, Delay: 300 * time.Millisecond, Probability: 0.3}, get(ossemu.Fault{Kind: ossemu.FaultReset, Probability: 0.2})}},
		{name: "errors everywhere", faults: []ossemu.Fault{{Kind: ossemu.FaultError, Code: "InternalError", Probability: 0.2}, {Kind: ossemu.FaultReset, Probability: 0.1}}},
		{
			name: "a bit of everything", tolerated: "EACCES ESTALE EIO SIGBUS", doubtful: true,
			faults: []ossemu.Fault{
				{Kind: ossemu.FaultError, Code: "InternalError", Probability: 0.05},
				{Kind: ossemu.FaultReset, Probability: 0.05},
				get(ossemu.Fault{Kind: ossemu.FaultResetBody, Probability: 0.1}),
				get(ossemu.Fault{Kind: ossemu.FaultTruncate, Probability: 0.1}),
				get(ossemu.Fault{Kind: ossemu.FaultCorrupt, Probability: 0.05}),
				get(ossemu.Fault{Kind: ossemu.FaultWrongCRC, Probability: 0.05}),
				get(ossemu.Fault{Kind: ossemu.FaultWrongETag, Probability: 0.05}),
				get(ossemu.Fault{Kind: ossemu.FaultError, Code: "AccessDenied", Probability: 0.02}),
			},
		},
	}
}

// Whatever the store does to its answers, a read returns right bytes or an error
// that fits; and when the trouble is over everything can be read, through the
// same mount, from whatever was kept.
func TestTroubleOfTheStore(t *testing.T) {
	for _, mode := range []struct {
		name  string
		flags []string
	}{
		{"ordinary", nil},
		{"immutable", []string{"--read-only", "--immutable"}},
		{"without passthrough", []string{"--passthrough=off"}},
	} {
		t.Run(mode.name, func(t *testing.T) {
			t.Parallel()
			rng := newRandom(t)
			w := newWorld(t)
			kinds := troubles()
			rng.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
			sets := make([][]file, rounds(t, 6))
			for round := range sets {
				sets[round] = w.add(fmt.Sprintf("round-%d", round), append(
					someSizes(rng, 12, 1, 1<<20), someSizes(rng, 4, 1<<20+1, 12<<20)...)...)
			}
			d := w.mount(append([]string{"--metadata-ttl=1s"}, mode.flags...)...)
			for round, files := range sets {
				k := kinds[round%len(kinds)]
				w.files = files
				j := w.job(rng)
				j.Reads, j.Doubtful = 8, k.doubtful
				w.faults(k.faults...)
				told := j.start(t).wait(d)
				w.faults()
				told.sound(t, k.name, strings.Fields(k.tolerated)...)
				t.Logf("%s: %d reads, errors %v, slowest %v %s", k.name, told.Reads, told.Errors, told.Slowest.Round(time.Millisecond), told.SlowestCall)

				if mode.name == "immutable" || strings.Contains(k.tolerated, "EIO") {
					// Without open nothing begins anew at once. And what was kept of a trouble with
					// content is found out when the object is whole, by one more error.
					d.recovers("after "+k.name, k.doubtful, w.files)
				}
				d.verify("after "+k.name, w.files, random, sequential, whole)
				d.settle()
				forget(w, w.files)
				d.verify("after "+k.name+", from SSD", w.files, mapped, sequential)
				if t.Failed() {
					t.Fatalf("%s in round %d", k.name, round)
				}
			}
			d.stop()
		})
	}
}

// A large object whose content came damaged is found out when all of it has come;
// then nothing of it is kept, neither by the cache nor by the kernel.
func TestDamagedContentIsNotKept(t *testing.T) {
	for _, mode := range []struct {
		name  string
		flags []string
	}{
		{"ordinary", nil},
		{"immutable", []string{"--read-only", "--immutable"}},
	} {
		t.Run(mode.name, func(t *testing.T) {
			t.Parallel()
			rng := newRandom(t)
			w := newWorld(t)
			sets := make([][]file, rounds(t, 6))
			for round := range sets {
				sets[round] = w.add(fmt.Sprintf("round-%d", round), someSizes(rng, 3, 1<<20+1, 30<<20)...)
			}
			d := w.mount(mode.flags...)
			failed := 0
			for _, files := range sets {
				w.files = files
				for skip := range 2 {
					w.faults(ossemu.Fault{Operation: "GetObject", Kind: ossemu.FaultCorrupt, Skip: skip + rng.IntN(3), Count: 1 + rng.IntN(2)})
					told := job{Root: w.at, Files: w.files, Readers: 3, Kinds: []string{sequential}, EachOnce: true, Doubtful: true}.start(t).wait(d)
					w.faults()
					told.sound(t, "while damaged", "EIO")
					failed += told.Errors["read EIO"]
					// What is left of the damage is found out when an object is whole, by one more
					// error; and an immutable mount has no open that begins anew.
					d.recovers("after the damage", true, w.files, sequential, whole)
				}
				if t.Failed() {
					t.FailNow()
				}
			}
			if failed == 0 {
				t.Error("no damage was ever noticed")
			}
		})
	}
}
