package machine

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

func TestFileSystemOfTakesTheDeepestMount(t *testing.T) {
	mounts := "/dev/vda / ext4 rw 0 0\nproc /proc proc rw 0 0\ntmpfs /tmp/a\\040b tmpfs rw 0 0\n/dev/vdb /tmp/a\\040b xfs rw 0 0\n"
	for dir, want := range map[string]string{
		"/":           "ext4",
		"/tmp/a":      "ext4",
		"/tmp/a b":    "xfs",
		"/tmp/a b/c":  "xfs",
		"/proc/1":     "proc",
		"/procession": "ext4",
	} {
		if got := fileSystemOf(dir, mounts); got != want {
			t.Errorf("%q is on %q, want %q", dir, got, want)
		}
	}
}

func TestLookFillsEveryFact(t *testing.T) {
	f, err := Look(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if f.Cores < 1 || f.MemoryBytes < 64<<20 || f.Kernel == "" || f.Go == "" || f.FileSystem == "unknown" || f.Commit == "" {
		t.Errorf("facts are %+v", f)
	}
}

func TestCPUTimeGrowsWithWork(t *testing.T) {
	before, err := CPUTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	busyBefore, err := BusyTime()
	if err != nil {
		t.Fatal(err)
	}
	// A busy machine may give this process little of a processor for long.
	after, sum := before, uint64(0)
	for limit := time.Now().Add(2 * time.Minute); after <= before && time.Now().Before(limit); {
		for range 1 << 24 {
			sum += sum<<7 + 1
		}
		if after, err = CPUTime(os.Getpid()); err != nil {
			t.Fatal(err)
		}
	}
	busyAfter, err := BusyTime()
	if err != nil {
		t.Fatal(err)
	}
	if after <= before || busyAfter < busyBefore {
		t.Errorf("processor time went from %v to %v, the machine's from %v to %v", before, after, busyBefore, busyAfter)
	}
	if _, err := CPUTime(1 << 22); err == nil {
		t.Error("a process that does not exist has a processor time")
	}
}

func TestParseBusyLeavesIdleOut(t *testing.T) {
	got, err := parseBusy("cpu  1 2 3 1000 2000 4 5 6 700 800")
	if err != nil {
		t.Fatal(err)
	}
	if want := 210 * time.Millisecond; got != want {
		t.Errorf("busy for %v, want %v", got, want)
	}
	if _, err := parseBusy("cpu0 1 2 3 4 5 6 7 8"); err == nil {
		t.Error("another line was accepted")
	}
}

func TestMemoryOfAnotherProcess(t *testing.T) {
	sleeper := exec.Command("sleep", "60")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = sleeper.Process.Kill()
		_ = sleeper.Wait()
	}()
	m, err := MemoryOf(sleeper.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if m.PeakBytes < m.NowBytes || m.NowBytes < m.AnonBytes || m.NowBytes == 0 {
		t.Errorf("memory is %+v", m)
	}
}

func TestParseMemoryRefusesMissingLines(t *testing.T) {
	if _, err := parseMemory("VmHWM:\t 10 kB\nVmRSS:\t 9 kB\n"); err == nil {
		t.Error("a status without RssAnon was accepted")
	}
}

func TestPrepareSpaceLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	if err := PrepareSpace(dir, 9<<20); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
	if err := PrepareSpace(filepath.Join(dir, "missing"), 1); err == nil {
		t.Error("a missing directory was accepted")
	}
}

// What the tests themselves need is far less than what is prepared, so neither that the
// kernel takes pages back nor that the collector does decides.
func TestPrepareMemoryGivesItBack(t *testing.T) {
	const size = 256 << 20
	if err := ResetPeak(os.Getpid()); err != nil {
		t.Fatal(err)
	}
	if m, err := MemoryOf(os.Getpid()); err != nil || m.PeakBytes >= size/2 {
		t.Fatalf("memory is %+v, %v before anything is prepared", m, err)
	}
	if err := PrepareMemory(size); err != nil {
		t.Fatal(err)
	}
	m, err := MemoryOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if m.PeakBytes < size || m.NowBytes >= size/2 {
		t.Errorf("memory is %+v after %d bytes were prepared", m, size)
	}
}

func TestReadThrough(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), make([]byte, 3<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", filepath.Join(dir, "l")); err != nil {
		t.Fatal(err)
	}
	if err := ReadThrough(dir); err != nil {
		t.Error(err)
	}
	if err := ReadThrough(filepath.Join(dir, "missing")); err != nil {
		t.Error(err)
	}
}

func TestSystemTimeIsTheFifteenthField(t *testing.T) {
	stat := "12 (a ) name) S 1 2 3 4 5 6 7 8 9 10 250 70 0 0 20 0"
	if got, err := parseSystemTime(stat); err != nil || got != 700*time.Millisecond {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := parseSystemTime("12 (x) S 1"); err == nil {
		t.Error("a short line was accepted")
	}
	if own, err := SystemTime(os.Getpid()); err != nil || own < 0 {
		t.Errorf("own: %v, %v", own, err)
	}
	if disk, err := DiskOf(t.TempDir()); err != nil || disk.Busy < 0 || disk.ReadBytes < 0 {
		t.Errorf("disk: %v, %v", disk, err)
	}
	if disk, err := parseDisk("  10 2 300 4 5 6 7 8 9 1200 11"); err != nil || disk != (Disk{Busy: 1200 * time.Millisecond, ReadBytes: 300 * 512}) {
		t.Errorf("disk: %v, %v", disk, err)
	}
}
