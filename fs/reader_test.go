package fs

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// readerCommand is the first argument that makes the test binary a reader.
const readerCommand = "pailfs-test-reader"

// readerTasks are what a reader can do, by name. A task gets its arguments as
// JSON and returns what is to be sent back.
var readerTasks = map[string]func(args json.RawMessage) (any, error){
	"small":        task(readSmall),
	"large":        task(readLarge),
	"differential": task(differential),
	"access":       task(access),
	"mapping":      task(mapping),
	"mount":        task(mountAs),
	"abandon":      task(abandon),
	"wait":         task(waitFor),
	"table":        task(runTable),
	"exercise":     task(exercise),
	"overtake":     task(overtake),
}

func task[A, R any](f func(A) (R, error)) func(json.RawMessage) (any, error) {
	return func(raw json.RawMessage) (any, error) {
		var a A
		if err := json.Unmarshal(raw, &a); err != nil {
			return nil, err
		}
		return f(a)
	}
}

// inReader runs a task in another process and stores what it returns in result.
func inReader(t testing.TB, name string, args, result any) {
	t.Helper()
	must(t, tryReader(name, args, result))
}

func tryReader(name string, args, result any, adjust ...func(*exec.Cmd)) error {
	raw, err := json.Marshal(args)
	if err != nil {
		return err
	}
	cmd := exec.Command(os.Args[0], readerCommand, name, string(raw))
	cmd.Stderr = os.Stderr
	for _, f := range adjust {
		f(cmd)
	}
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("reader %s: %w: %s", name, err, out)
	}
	return json.Unmarshal(out, result)
}

func readerMain(args []string) int {
	f, ok := readerTasks[args[0]]
	if !ok {
		fmt.Println("no such task")
		return 2
	}
	result, err := f(json.RawMessage(args[1]))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		return 1
	}
	return 0
}

type smallArgs struct {
	Dir     string
	Files   int
	Readers int
	Rounds  int
}

type rateResult struct {
	Ops     int
	Bytes   int64
	Seconds float64
}

func (r rateResult) opsPerSecond() float64   { return float64(r.Ops) / r.Seconds }
func (r rateResult) bytesPerSecond() float64 { return float64(r.Bytes) / r.Seconds }

// smallName is the path of the i-th of many small files.
func smallName(i int) string { return fmt.Sprintf("d%03d/f%05d", i/1000, i) }

// readSmall opens, reads and closes files, each reader its share of them.
func readSmall(a smallArgs) (rateResult, error) {
	var wg sync.WaitGroup
	errs := make([]error, a.Readers)
	bytes := make([]int64, a.Readers)
	start := time.Now()
	for r := range a.Readers {
		wg.Go(func() {
			runtime.LockOSThread()
			buf := make([]byte, 256<<10)
			for range a.Rounds {
				for i := r; i < a.Files; i += a.Readers {
					fd, err := unix.Open(filepath.Join(a.Dir, smallName(i)), unix.O_RDONLY, 0)
					if err != nil {
						errs[r] = err
						return
					}
					for {
						n, err := unix.Read(fd, buf)
						if err != nil {
							errs[r] = err
							return
						}
						if n == 0 {
							break
						}
						bytes[r] += int64(n)
					}
					_ = unix.Close(fd)
				}
			}
		})
	}
	wg.Wait()
	res := rateResult{Ops: a.Files * a.Rounds, Seconds: time.Since(start).Seconds()}
	for r := range a.Readers {
		if errs[r] != nil {
			return res, errs[r]
		}
		res.Bytes += bytes[r]
	}
	return res, nil
}
