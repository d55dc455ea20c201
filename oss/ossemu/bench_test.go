package ossemu_test

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pailfs/pailfs/oss/ossemu"
)

// hammer repeats a request on several connections and reports what the whole
// process spent for it, which is server and client together.
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

// BenchmarkGet reads ranges of one object.
func BenchmarkGet(b *testing.B) {
	for _, size := range []int{4 << 10, 112 << 10, 8 << 20} {
		for _, connections := range []int{1, 16} {
			b.Run(fmt.Sprintf("size=%d/connections=%d", size, connections), func(b *testing.B) {
				c := start(b, ossemu.Config{})
				c.emu.Put("object", pattern(2*size))
				q := withHeader(c.object("GET", "object", ""), "Range", "bytes=0-"+strconv.Itoa(size-1), "x-oss-range-behavior", "standard")
				hammer(b, c, connections, "206", q)
			})
		}
	}
}

// BenchmarkGetSmallObject reads a whole packed object.
func BenchmarkGetSmallObject(b *testing.B) {
	c := start(b, ossemu.Config{})
	c.emu.Put("object", pattern(1000))
	hammer(b, c, 16, "200", c.object("GET", "object", ""))
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
