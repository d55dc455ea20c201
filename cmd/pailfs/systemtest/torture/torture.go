// Package torture is what a round of torture tells: which kind it was, its seed, what happened
// and whether it passed. Rounds are run by the tests in ../, one process each, started by
// run/, which appends a line of JSON per round to a file; lines of many files make one
// summary.
package torture

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// The kinds of rounds.
const (
	Kills   = "kills"
	Power   = "power"
	Failing = "failing"
	Disk    = "disk"
	Memory  = "memory"
	Editing = "editing"
	Soak    = "soak"

	Content    = "content"
	Names      = "names"
	Posix      = "posix"
	Privileges = "privileges"
	Abuse      = "abuse"
)

// Kind is one kind of rounds.
type Kind struct {
	Name string
	// Share is how many rounds of `make torture` there are for one of these.
	Share int
	// What happens in a round.
	What string
	// Of is the test that is a round, if it is not one of TestTorture.
	Of *Test
}

// Test is a test of another package, which is a round of torture at its full size.
type Test struct {
	// Package is its folder, Name the test.
	Package, Name string
	// Seed is the variable by which it is told its seed.
	Seed string
	// Full and Short are variables that give it its size. Short goes with -short.
	Full, Short []string
	// Limit is how long it may take at its full size.
	Limit time.Duration
}

// Kinds are all there are, in the order in which they are told.
func Kinds() []Kind {
	return []Kind{
		{Kills, 1, "kill -9 at random instants under load, also while a mount recovers", nil},
		{Power, 5, "loss of power: what the disk had at a random instant, without unsynced writes", nil},
		{Failing, 10, "20 % of requests fail in 13 ways, and perhaps a kill", nil},
		{Disk, 10, "the cache's disk fills, fails, or goes read-only", nil},
		{Memory, 20, "a memory limit of the cgroup, one that suffices or one that kills", nil},
		{Editing, 10, "files are rewritten and truncated while they are uploaded", nil},
		{Soak, 1000, "a mixed load for hours; memory, descriptors, goroutines, disk and inodes do not drift", nil},
		{Content, 100, "random changes of content in all ways that Linux has, by three processes, as on ext4", &Test{
			Package: "fs", Name: "TestRandomChangesOfContentAsOnALocalDisk", Seed: envTestSeed,
			Full: []string{"PAILFS_FS_EXERCISE=10000"}, Limit: 2 * time.Hour,
		}},
		{Names, 100, "random changes of names by three workers, as on ext4", &Test{
			Package: "fs", Name: "TestRandomOperationsAsOnALocalDisk", Seed: envTestSeed,
			Full: []string{"PAILFS_FS_STRESS=40"}, Limit: 2 * time.Hour,
		}},
		{Posix, 200, "all rows of the table of system calls, by several users, as on ext4", &Test{
			Package: "fs", Name: "TestSystemCallsAsOnALocalDisk", Seed: envTestSeed,
			Full: wholeTable, Limit: 2 * time.Hour,
		}},
		{Privileges, 200, "all rows of the table of set-ID bits, as on ext4", &Test{
			Package: "fs", Name: "TestSetIDBitsAsOnALocalDisk", Seed: envTestSeed,
			Full: wholeTable, Limit: 2 * time.Hour,
		}},
		{Abuse, 200, "300,000 random calls of the control channel by 100 users; the daemon stays within its memory", &Test{
			Package: "cmd/pailfs/internal/mounting", Name: "TestNoCallOfManyUsersTakesMoreThanTheBound", Seed: "PAILFS_ABUSE_SEED",
			Full: []string{"PAILFS_ABUSE_CALLS=300000"}, Short: []string{"PAILFS_ABUSE_CALLS=500"}, Limit: 2 * time.Hour,
		}},
	}
}

// envTestSeed is the seed of the tests in fs.
const envTestSeed = "PAILFS_TEST_SEED"

// wholeTable lets a table be compared row by row, where tests take a part of it.
var wholeTable = []string{"PAILFS_TEST_TABLE=all"}

// kindOf returns the kind with a name, which is one that there is.
func kindOf(name string) Kind {
	all := Kinds()
	return all[slices.IndexFunc(all, func(k Kind) bool { return k.Name == name })]
}

// The environment through which a round is told what it is.
const (
	// EnvKind and EnvSeed choose it.
	EnvKind = "PAILFS_TORTURE_KIND"
	EnvSeed = "PAILFS_TORTURE_SEED"
	// EnvReport is the file to which its Report is written.
	EnvReport = "PAILFS_TORTURE_REPORT"
	// EnvProfiles is the folder for profiles of the heap, one of each time that a soak rests.
	EnvProfiles = "PAILFS_TORTURE_PROFILES"
	// EnvSoak is how long a soak lasts.
	EnvSoak = "PAILFS_TORTURE_SOAK"
	// EnvProgram is the pailfs to test, built by the test otherwise.
	EnvProgram = "PAILFS_SYSTEMTEST_PROGRAM"
)

// Limit is how long a round may take before it counts as hanging, if a soak lasts so long. A soak of
// two hours has three: on a machine that does much else, what its last load wrote takes long to
// be published. Nothing is asserted on time.
func Limit(kind string, soak time.Duration) time.Duration {
	const short = 9 * time.Minute
	if kind == Soak {
		return short + soak*3/2
	}
	if of := kindOf(kind).Of; of != nil {
		return of.Limit
	}
	return short
}

// Report is what a round tells of itself.
type Report struct {
	// What happened.
	What string `json:"what"`
	// Kills and PowerLosses are how often the daemon was killed, or the power was lost.
	Kills       int `json:"kills,omitempty"`
	PowerLosses int `json:"power_losses,omitempty"`
	// Pending says that something acknowledged was not in the bucket then.
	Pending bool `json:"pending,omitempty"`
	// Samples are those of a soak.
	Samples []Sample `json:"samples,omitempty"`
}

// Sample is what a daemon takes up.
type Sample struct {
	// After is how long after the start, in seconds.
	After float64 `json:"after"`
	// Resident is in bytes: Anonymous, and File, the pages of files that are mapped, of its program
	// above all. What the memory tier holds, Tier, is part of what is anonymous.
	Resident  int64 `json:"resident"`
	Anonymous int64 `json:"anonymous,omitempty"`
	File      int64 `json:"file,omitempty"`
	Tier      int64 `json:"tier,omitempty"`
	// Descriptors and Goroutines are those that are there.
	Descriptors int `json:"descriptors"`
	Goroutines  int `json:"goroutines"`
	// Connections are those to the store. Each is a descriptor and two goroutines, and rests for
	// the next request for a while.
	Connections int `json:"connections,omitempty"`
	// DiskBytes and DiskInodes are what the cache directory's file system has in use.
	DiskBytes  int64 `json:"disk_bytes"`
	DiskInodes int64 `json:"disk_inodes"`
	// Inodes are those that the daemon knows.
	Inodes int64 `json:"inodes"`
}

// String is the sample as a line of a log.
func (s Sample) String() string {
	return fmt.Sprintf("after %4.0f s %3d MiB resident (%d anonymous, of which the memory tier holds %d, and %d of files), %d descriptors, %d goroutines, %d connections, disk %d MiB in %d inodes, %d inodes known",
		s.After, s.Resident>>20, s.Anonymous>>20, s.Tier>>20, s.File>>20, s.Descriptors, s.Goroutines, s.Connections, s.DiskBytes>>20, s.DiskInodes, s.Inodes)
}

// Result is a round as it is kept.
type Result struct {
	Kind   string `json:"kind"`
	Seed   uint64 `json:"seed"`
	OK     bool   `json:"ok"`
	Report Report `json:"report"`
	// Seconds it took.
	Seconds float64   `json:"seconds"`
	Began   time.Time `json:"began"`
	// Commit is of the program that was tested.
	Commit string `json:"commit"`
	// Failure is the beginning of what a round that failed printed.
	Failure string `json:"failure,omitempty"`
}

// Repeat is the command that runs the round again.
func (r Result) Repeat() string {
	return fmt.Sprintf("make torture KINDS=%s SEEDS=%d-%d", r.Kind, r.Seed, r.Seed)
}

// String is the line that tells of a round.
func (r Result) String() string {
	ok := "ok"
	if !r.OK {
		ok = "FAILED"
	}
	return fmt.Sprintf("%-10s seed %-6d %-6s %5.1f s  %s  [%s]", r.Kind, r.Seed, ok, r.Seconds, r.Report.What, r.Repeat())
}

// Append adds a result to a file.
func Append(path string, r Result) error {
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("result of %s seed %d: %w", r.Kind, r.Seed, err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("append result: %w", err)
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

// Read returns the results in a file. A last line that is cut off is none: whoever wrote it
// was stopped.
func Read(in io.Reader) ([]Result, error) {
	var all []Result
	lines := bufio.NewReader(in)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		var r Result
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		all = append(all, r)
	}
}

// Failure is what a test program that failed said of why: what is told by name of a test's file
// and line, or else its end.
func Failure(said string) string {
	if lines := told(said); len(lines) > 0 {
		all := strings.Join(lines, "\n")
		return all[:min(len(all), 2000)]
	}
	return said[max(0, len(said)-1000):]
}

// told are the first lines that tests told, each of which begins with a file and a line of it.
func told(said string) (lines []string) {
	bytes := 0
	for line := range strings.Lines(said) {
		line = strings.TrimSpace(line)
		at, _, _ := strings.Cut(line, ": ")
		if file, _, ok := strings.Cut(at, ":"); ok && strings.HasSuffix(file, "_test.go") && !strings.Contains(line, "log of [") && bytes < 1000 {
			lines = append(lines, line)
			bytes += len(line)
		}
	}
	return lines
}

// Told is what a test that passed, and makes no report, said of itself: the beginnings of its lines.
func Told(said string) string {
	var what []string
	for _, line := range told(said) {
		_, text, _ := strings.Cut(line, ": ")
		if len(text) > 100 {
			text = strings.ToValidUTF8(text[:100], "") + " …"
		}
		if !strings.HasPrefix(text, envTestSeed) {
			what = append(what, text)
		}
	}
	return strings.Join(what, "; ")
}
