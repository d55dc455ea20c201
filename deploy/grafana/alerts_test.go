package grafana

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/oss/ossemu"
)

// TestRulesAreWellFormed asks promtool.
func TestRulesAreWellFormed(t *testing.T) {
	if out, err := exec.Command("promtool", "check", "rules", "--lint=all", "--lint-fatal", rulesFile).CombinedOutput(); err != nil {
		t.Fatalf("promtool: %v\n%s", err, out)
	}
}

var (
	held   = regexp.MustCompile(`(?m)^ *for: .*\n`)
	window = regexp.MustCompile(`\[(5|10)m\]`)
)

// quick returns the rules with shorter times, so that a test need not wait for them: the
// conditions are the same.
func quick(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	rules := window.ReplaceAllString(held.ReplaceAllString(string(text), ""), "[5s]")
	for _, long := range [][2]string{{"oldest_seconds > 1800", "oldest_seconds > 3"}, {"timestamp_seconds > 60", "timestamp_seconds > 5"}} {
		if !strings.Contains(rules, long[0]) {
			t.Fatalf("%s has no %q any more", rulesFile, long[0])
		}
		rules = strings.ReplaceAll(rules, long[0], long[1])
	}
	return rules
}

// keys writes a file of credentials that end after a while.
func keys(t *testing.T, file, id, secret string, valid time.Duration) {
	t.Helper()
	text, err := json.Marshal(map[string]string{"AccessKeyId": id, "AccessKeySecret": secret, "Expiration": time.Now().Add(valid).UTC().Format(time.RFC3339)})
	if err != nil {
		t.Fatal(err)
	}
	fresh := file + ".fresh"
	if err := os.WriteFile(fresh, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(fresh, file); err != nil {
		t.Fatal(err)
	}
}

// smallDisk is an ext4 of its own, which can be made to fail.
func smallDisk(t *testing.T) (dir string, fail func()) {
	t.Helper()
	image, dir := filepath.Join(t.TempDir(), "image"), filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 256<<20); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"mkfs.ext4", "-q", "-F", image}, {"mount", "-o", "loop", image, dir}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir, func() {
		d, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		// Without flushing anything: fs/ext4/ext4.h, EXT4_IOC_SHUTDOWN and EXT4_GOING_FLAGS_NOLOGFLUSH.
		if err := unix.IoctlSetPointerInt(int(d.Fd()), 0x8004587d, 2); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAlertsFireAndEnd makes what each alert tells of happen to real mounts and an agent, and
// ends it.
func TestAlertsFireAndEnd(t *testing.T) {
	t.Parallel()
	const objects = 3000
	e := newEmulator(t, objects)
	credentials := filepath.Join(t.TempDir(), "keys.json")
	keys(t, credentials, e.AccessKeyID, e.AccessKeySecret, 12*time.Hour)
	m := newMount(t, e, t.TempDir(), "--credentials=file", "--credentials-file="+credentials, "--staging-size=64MiB",
		"--metadata-ttl=1s", "--negative-ttl=0s", "--passthrough=off")
	disk, failDisk := smallDisk(t)
	other := newMount(t, e, filepath.Join(disk, "cache"), "--metadata-ttl=1s")
	a := newAgent(t, other)
	p := newProm(t, quick(t), m.address, other.address, strings.TrimPrefix(a.server.URL, "http://"))
	t.Cleanup(work(m, objects))

	faults := func(f ...ossemu.Fault) {
		t.Helper()
		if err := e.Server.SetFaults(f); err != nil {
			t.Fatal(err)
		}
	}
	write := func(m *mount, name string, size int) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(m.path(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(m.path(name), make([]byte, size), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	error403 := ossemu.Fault{Kind: ossemu.FaultError, Code: "AccessDenied"}
	var noUpload []ossemu.Fault
	for _, operation := range []string{"PutObject", "InitiateMultipartUpload", "UploadPart"} {
		noUpload = append(noUpload, ossemu.Fault{Kind: ossemu.FaultError, Code: "InternalError", KeyPrefix: "slow/", Operation: operation})
	}
	denied := error403
	denied.KeyPrefix = "denied/"
	var written sync.WaitGroup
	var writeErr error
	repeat := func(do func(i int)) func() bool {
		i := 0
		return func() bool { i++; do(i); return false }
	}

	for _, at := range []*mount{m, other} {
		eventually(t, "a mount that Prometheus knows", func() bool { return p.numbers(fmt.Sprintf("pailfs_build_info{instance=%q}", at.address)) > 0 })
	}
	alerts := []struct {
		name string
		at   *mount // nil for the agent
		// begin makes it happen; again, if there is one, is called until the alert fires.
		begin func()
		again func() bool
		end   func()
	}{
		{"PailfsMountDown", other, other.kill, nil, other.start},
		{"PailfsMountNotReady", nil, other.kill, nil, other.start},
		{"PailfsUploadsFailing", m, func() { write(m, "denied/x", 10); faults(denied); write(m, "denied/y", 10) }, nil, func() { faults() }},
		{"PailfsNotDurableForLong", m, func() { faults(noUpload...); write(m, "slow/x", 10) }, nil, func() { faults() }},
		{"PailfsStagingNearlyFull", m, func() {
			faults(noUpload...)
			// It waits where the limit is reached.
			written.Go(func() { writeErr = os.WriteFile(m.path("slow/large"), make([]byte, 58<<20), 0o644) })
		}, nil, func() {
			faults()
			if written.Wait(); writeErr != nil {
				t.Error(writeErr)
			}
		}},
		{"PailfsConflict", m, func() {}, repeat(func(i int) {
			name := fmt.Sprintf("both/%d", i)
			faults(ossemu.Fault{Kind: ossemu.FaultError, Code: "InternalError", KeyPrefix: "both/", Operation: "PutObject"})
			write(m, name, 10)
			e.Put(name, []byte("somebody else's"))
			faults()
		}), func() {}},
		{"PailfsAccessRefused", m, func() { faults(error403) }, nil, func() { faults() }},
		{
			"PailfsCredentialsExpiring", m, func() { keys(t, credentials, e.AccessKeyID, e.AccessKeySecret, 5*time.Minute) }, nil,
			func() { keys(t, credentials, e.AccessKeyID, e.AccessKeySecret, 12*time.Hour) },
		},
		{"PailfsThrottled", m, func() { faults(ossemu.Fault{Kind: ossemu.FaultError, Code: "QpsLimitExceeded", Every: 2}) }, nil, func() { faults() }},
		{"PailfsStoreErrors", m, func() { faults(ossemu.Fault{Kind: ossemu.FaultError, Code: "InternalError", Every: 3}) }, nil, func() { faults() }},
		{"PailfsReadsFail", m, func() {}, repeat(func(i int) {
			key := fmt.Sprintf("gone/%d", i)
			e.Put(key, make([]byte, 1<<20))
			f, err := os.Open(m.path(key))
			if err != nil {
				return // the listing is remembered for a second
			}
			defer f.Close()
			e.Delete(key)
			_, _ = f.ReadAt(make([]byte, 10), 500<<10) // it fails: that is what is looked for
		}), func() {}},
		{"PailfsCacheDamaged", m, func() { faults(ossemu.Fault{Kind: ossemu.FaultWrongCRC, KeyPrefix: "odd/", Operation: "GetObject"}) }, repeat(func(i int) {
			key := fmt.Sprintf("odd/%d", i)
			e.Put(key, make([]byte, 100))
			_, _ = os.ReadFile(m.path(key)) // it may fail: its bytes contradict their checksum
		}), func() { faults() }},
		{"PailfsGPUUnwell", nil, func() { a.gpus("Healthy", "Unhealthy") }, nil, func() { a.gpus("Healthy", "Healthy") }},
		{"PailfsAgentStalled", nil, func() { a.stop() }, nil, a.start},
		{"PailfsCacheDiskUnwell", other, failDisk, repeat(func(i int) { _, _ = os.ReadFile(other.path(fmt.Sprintf("data/%05d", i%objects))) }), func() {
			other.kill()
			other.flags = append(other.flags, "--cache-dir="+t.TempDir())
			other.start()
		}},
	}
	for _, alert := range alerts {
		instance := strings.TrimPrefix(a.server.URL, "http://")
		if alert.at != nil {
			instance = alert.at.address
		}
		fires := func() bool { return slices.Contains(p.firing(alert.name), instance) }
		t.Run(alert.name, func(t *testing.T) {
			eventually(t, "its end before it begins", func() bool { return !fires() })
			alert.begin()
			eventually(t, "that it fires", func() bool {
				if fires() {
					return true
				}
				if alert.again != nil {
					alert.again()
				}
				return false
			})
			alert.end()
			eventually(t, "that it ends", func() bool { return !fires() })
		})
	}
	rules := 0
	for _, r := range readRules(t) {
		if r.Alert != "" {
			rules++
		}
	}
	if rules != len(alerts) {
		t.Errorf("%d alerts were made to fire, and %s has %d", len(alerts), rulesFile, rules)
	}
}
