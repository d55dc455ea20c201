package ossemu_test

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pailfs/pailfs/oss/ossemu"
	"github.com/pailfs/pailfs/oss/ossemu/ossemutest"
)

// hammer repeats a request on several connections and reports what this process
// spent for it: the client, and the server unless it has a process of its own.
func hammer(b *testing.B, c *client, connections int, status string, q call) {
	b.Helper()
	conns := make([]*rawConn, connections)
	for i := range conns {
		var err error
		if conns[i], err = c.dialRaw(q); err != nil {
			b.Fatal(err)
		}
		defer conns[i].conn.Close()
	}
	n, err := conns[0].once(status)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(max(n, len(q.body))))
	before := cpuTime(b)
	b.ResetTimer()
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	for _, conn := range conns {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if _, err := conn.once(status); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
	b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/float64(b.N), "cpu-us/request")
}

func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkGet reads ranges of an object from a server in a process of its own,
// so that what the server itself costs can be told apart.
func BenchmarkGet(b *testing.B) {
	cmd, endpoint := victim(b, b.TempDir())
	b.Cleanup(func() {
		if err := cmd.Process.Kill(); err != nil {
			b.Error(err)
		}
		_ = cmd.Wait() // it was killed
	})
	c := &client{t: b, http: newHTTPClient(b), emu: &ossemutest.Emulator{
		Endpoint: endpoint, Bucket: ossemutest.Bucket, AccessKeyID: ossemutest.AccessKeyID, AccessKeySecret: ossemutest.AccessKeySecret,
	}}
	for _, size := range []int{1000, 4 << 10, 112 << 10, 8 << 20} {
		c.put("object", pattern(2*size))
		for _, connections := range []int{1, 16} {
			b.Run(fmt.Sprintf("size=%d/connections=%d", size, connections), func(b *testing.B) {
				before := processTime(b, cmd.Process.Pid)
				q := withHeader(c.object("GET", "object", ""), "Range", "bytes=0-"+strconv.Itoa(size-1), "x-oss-range-behavior", "standard")
				hammer(b, c, connections, "206", q)
				server := processTime(b, cmd.Process.Pid) - before
				b.ReportMetric(float64(server.Microseconds())/float64(b.N), "server-us/request")
				b.ReportMetric(server.Seconds()/b.Elapsed().Seconds(), "server-cores")
			})
		}
	}
}

// processTime is the processor time of another process, in steps of 10 ms.
func processTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	// The name of the program, in parentheses, may hold anything.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// BenchmarkHead asks for an object.
func BenchmarkHead(b *testing.B) {
	c := start(b, ossemu.Config{})
	c.emu.Put("object", nil)
	hammer(b, c, 16, "200", c.object("HEAD", "object", ""))
}

// BenchmarkPut replaces an object.
func BenchmarkPut(b *testing.B) {
	for _, size := range []int{1000, 112 << 10, 8 << 20} {
		for _, cheap := range []bool{false, true} {
			b.Run(fmt.Sprintf("size=%d/cheap=%v", size, cheap), func(b *testing.B) {
				c := start(b, ossemu.Config{CheapETags: cheap})
				q := c.object("PUT", "object", "")
				q.body = pattern(size)
				hammer(b, c, 4, "200", q)
			})
		}
	}
}

// BenchmarkList reads a page of 1000 keys out of a bucket of 100,000.
func BenchmarkList(b *testing.B) {
	c := start(b, ossemu.Config{})
	for i := range 100_000 {
		c.emu.Put(fmt.Sprintf("dir%02d/file%05d", i%100, i), nil)
	}
	for name, query := range map[string]string{
		"flat":      "list-type=2&max-keys=1000&prefix=dir42/",
		"delimiter": "list-type=2&max-keys=1000&delimiter=/",
	} {
		b.Run(name, func(b *testing.B) { hammer(b, c, 4, "200", c.object("GET", "", query)) })
	}
}

// BenchmarkPutDirectly loads objects past the protocol.
func BenchmarkPutDirectly(b *testing.B) {
	c := start(b, ossemu.Config{})
	body := pattern(1000)
	b.SetBytes(int64(len(body)))
	i := 0
	for b.Loop() {
		c.emu.Put(strconv.Itoa(i), body)
		i++
	}
}
