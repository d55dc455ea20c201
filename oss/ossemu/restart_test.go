package ossemu_test

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pailfs/pailfs/oss/ossemu"
	"github.com/pailfs/pailfs/oss/ossemu/ossemutest"
)

// victimDir is the environment variable that makes the test binary an emulator
// over that directory.
const victimDir = "OSSEMU_TEST_VICTIM_DIR"

func victimConfig(dir string) ossemu.Config {
	return ossemu.Config{
		Dir: dir, Buckets: []string{ossemutest.Bucket},
		Credentials: []ossemu.Credential{{AccessKeyID: ossemutest.AccessKeyID, AccessKeySecret: ossemutest.AccessKeySecret}},
	}
}

// runVictim serves until it is killed, with the memory settings of cmd/ossemu.
func runVictim(dir string) error {
	debug.SetGCPercent(400)
	s, err := ossemu.Open(victimConfig(dir))
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(os.Stdout, l.Addr()); err != nil {
		return err
	}
	return s.Serve(l)
}

// victim starts an emulator in a process of its own.
func victim(t testing.TB, dir string) (*exec.Cmd, string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), victimDir+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return cmd, "http://" + strings.TrimSpace(addr)
}

func TestKillLosesNothingThatWasAnswered(t *testing.T) {
	dir := t.TempDir()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var mu sync.Mutex
	// confirmed is the last version that was answered, tried the one after it.
	confirmed, tried := map[string]int{}, map[string]int{}
	content := func(key string, version int) []byte {
		size := []int{10, 3000, 70_000, 700_000}[version%4]
		return append(fmt.Appendf(nil, "%s %d ", key, version), pattern(size)...)
	}
	for round := range 6 {
		cmd, endpoint := victim(t, dir)
		c := &client{t: t, http: newHTTPClient(t), emu: &ossemutest.Emulator{
			Endpoint: endpoint, Bucket: ossemutest.Bucket, AccessKeyID: ossemutest.AccessKeyID, AccessKeySecret: ossemutest.AccessKeySecret,
		}}
		for key := range tried {
			got := c.get(key).body
			if !bytes.Equal(got, content(key, confirmed[key])) && !bytes.Equal(got, content(key, tried[key])) {
				t.Fatalf("round %d: %q holds neither version %d nor %d", round, key, confirmed[key], tried[key])
			}
			confirmed[key] = tried[key]
			if !bytes.Equal(got, content(key, tried[key])) {
				confirmed[key]--
			}
		}
		var wg sync.WaitGroup
		for worker := range 4 {
			wg.Go(func() {
				for i := 0; ; i++ {
					key := fmt.Sprintf("worker%d/key%d", worker, i%5)
					mu.Lock()
					version := confirmed[key] + 1
					mu.Unlock()
					q := c.object("PUT", key, "")
					q.body = content(key, version)
					mu.Lock()
					tried[key] = version
					mu.Unlock()
					if a := c.do(q); a.err != nil || a.status != 200 {
						return
					}
					mu.Lock()
					confirmed[key] = version
					mu.Unlock()
				}
			})
		}
		// In the first round something is stored, however slow the disk is.
		for limit := time.Now().Add(2 * time.Minute); round == 0 && time.Now().Before(limit); time.Sleep(time.Millisecond) {
			mu.Lock()
			stored := len(confirmed)
			mu.Unlock()
			if stored > 0 {
				break
			}
		}
		time.Sleep(time.Duration(50+rng.IntN(200)) * time.Millisecond)
		if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed
		wg.Wait()
		for key := range tried {
			if confirmed[key] == 0 {
				// Never answered, so it may be missing.
				delete(tried, key)
			}
		}
	}
	if len(confirmed) == 0 {
		t.Fatal("nothing was ever stored")
	}
}
