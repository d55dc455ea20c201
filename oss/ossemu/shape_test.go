package ossemu_test

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pailfs/pailfs/oss/ossemu"
	"github.com/pailfs/pailfs/oss/ossemu/ossemutest"
	"github.com/pailfs/pailfs/oss/ossemu/shape"
)

// timed is a client whose requests reach the server without a network, on the
// false clock of synctest, on which only waiting takes time. So a test can say
// exactly how long a request lasts, on any machine.
type timed struct{ *client }

func timedClient(t *testing.T, sh ossemu.Shape) timed {
	t.Helper()
	s, err := ossemu.Open(victimConfig(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := s.SetShape(sh); err != nil {
		t.Fatal(err)
	}
	return timed{&client{t: t, emu: &ossemutest.Emulator{
		Server: s, Endpoint: "http://127.0.0.1", Bucket: ossemutest.Bucket,
		AccessKeyID: ossemutest.AccessKeyID, AccessKeySecret: ossemutest.AccessKeySecret,
	}}}
}

// load stores an object past the protocol.
func (c timed) load(key string, body []byte) {
	c.t.Helper()
	if _, err := c.emu.Server.Put(c.emu.Bucket, key, bytes.NewReader(body)); err != nil {
		c.t.Fatal(err)
	}
}

// took sends a call and returns how long it lasted.
func (c timed) took(status int, q call) time.Duration {
	c.t.Helper()
	r := c.request(q)
	r.RequestURI = ""
	if r.Body == nil {
		r.Body = io.NopCloser(strings.NewReader(""))
	}
	r.Host = r.URL.Host
	w := httptest.NewRecorder()
	began := time.Now()
	c.emu.Server.ServeHTTP(w, r)
	if w.Code != status {
		c.t.Errorf("%s %s: status %d, want %d: %s", q.method, q.key, w.Code, status, w.Body)
	}
	return time.Since(began)
}

func (c timed) lasts(want time.Duration, status int, q call) {
	c.t.Helper()
	if got := c.took(status, q); math.Abs(float64(got-want)) > 0.01*float64(want) {
		c.t.Errorf("%s %s?%s lasted %v, want %v", q.method, q.key, q.query, got, want)
	}
}

func TestRequestsLastAsTheShapeSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ms := func(n int) shape.Latency { return shape.Latency{Median: time.Duration(n) * time.Millisecond} }
		c := timedClient(t, ossemu.Shape{
			Get: ms(30), Head: ms(12), Put: ms(35), List: ms(20), ListPerEntry: 100 * time.Microsecond,
			Copy: ms(30), CopyRate: 500e6, Complete: ms(50), CompletePerPart: time.Millisecond,
			DownloadPerConnection: 100e6, UploadPerConnection: 50e6,
		})
		mb := pattern(10e6)
		c.load("large", mb)
		c.load("small", mb[:1000])
		for i := range 200 {
			c.load(fmt.Sprintf("list/%03d", i), nil)
		}
		c.lasts(130*time.Millisecond, 200, c.object("GET", "large", ""))
		c.lasts(80*time.Millisecond, 206, withHeader(c.object("GET", "large", ""), "Range", "bytes=0-4999999"))
		c.lasts(30*time.Millisecond, 200, c.object("GET", "small", ""))
		c.lasts(12*time.Millisecond, 200, c.object("HEAD", "large", ""))
		c.lasts(12*time.Millisecond, 200, c.object("HEAD", "large", "objectMeta"))
		c.lasts(30*time.Millisecond, 404, c.object("GET", "nothing", ""))
		// The page itself is 59 KB, which take their time as well.
		c.lasts(40588*time.Microsecond, 200, c.object("GET", "", "prefix=list/&max-keys=1000"))
		c.lasts(50*time.Millisecond, 200, withHeader(c.object("PUT", "copy", ""), "x-oss-copy-source", "/"+c.emu.Bucket+"/large"))
		put := c.object("PUT", "new", "")
		put.body = mb
		c.lasts(235*time.Millisecond, 200, put)
		// The client's own limit is a bound as well: 8,388,608 bit/s.
		c.lasts(30*time.Millisecond+time.Second, 206, withHeader(c.object("GET", "large", ""), "Range", "bytes=0-1048575", "x-oss-traffic-limit", "8388608"))
		st := c.emu.Server.Stats()
		if st.InjectedLatencyP50 < 0.011 || st.InjectedLatencyP99 > 0.06 {
			t.Errorf("injected latency %v, %v", st.InjectedLatencyP50, st.InjectedLatencyP99)
		}
	})
}

func TestParallelDownloadsFillTheLinkTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := timedClient(t, ossemu.Shape{Download: 600e6})
		c.load("object", pattern(6e6))
		began := time.Now()
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 3 {
					c.took(200, c.object("GET", "object", ""))
				}
			})
		}
		wg.Wait()
		rate := 8 * 3 * 6e6 / time.Since(began).Seconds()
		if rate < 0.99*600e6 || rate > 1.01*600e6 {
			t.Errorf("%.1f MB/s over a link of 600", rate/1e6)
		}
	})
}

func TestTheSeedProfileGivesTheFiguresItWasMadeFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sh, err := shape.Profile("seed")
		if err != nil {
			t.Fatal(err)
		}
		c := timedClient(t, sh)
		c.load("object", pattern(8<<20))
		total := func(q call, status, n int) time.Duration {
			var sum time.Duration
			for range n {
				sum += c.took(status, q)
			}
			return sum / time.Duration(n)
		}
		for _, row := range []struct {
			what        string
			got         time.Duration
			least, most time.Duration
		}{
			{"random 4 KiB", total(withHeader(c.object("GET", "object", ""), "Range", "bytes=4096-8191"), 206, 300), 28 * time.Millisecond, 40 * time.Millisecond},
			{"8 MiB range", total(c.object("GET", "object", ""), 200, 100), 100 * time.Millisecond, 140 * time.Millisecond},
			{"append of 10 MB", c.took(200, call{method: "POST", bucket: c.emu.Bucket, key: "log", query: "append&position=0", body: pattern(10e6)}), 100 * time.Millisecond, 400 * time.Millisecond},
		} {
			if row.got < row.least || row.got > row.most {
				t.Errorf("%s: %v, want %v to %v", row.what, row.got, row.least, row.most)
			}
		}
	})
}

// fileWatcher is a response writer that, like net/http's, takes over a file.
type fileWatcher struct {
	*httptest.ResponseRecorder
	fromFiles int64
}

func (w *fileWatcher) ReadFrom(r io.Reader) (int64, error) {
	n, err := io.Copy(w.ResponseRecorder, r)
	if lr, ok := r.(*io.LimitedReader); ok {
		if _, ok := lr.R.(*os.File); ok {
			w.fromFiles += n
		}
	}
	return n, err
}

// What reaches the response writer as a limited file, net/http sends with
// sendfile.
func TestLargeBodiesAreSentFromTheirFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, sh := range []ossemu.Shape{{}, {Download: 100e6, DownloadPerConnection: 50e6}} {
			c := timedClient(t, sh)
			body := pattern(1 << 20)
			c.load("object", body)
			w := &fileWatcher{ResponseRecorder: httptest.NewRecorder()}
			r := c.request(withHeader(c.object("GET", "object", ""), "Range", "bytes=1000-900999"))
			r.Host, r.Body = r.URL.Host, http.NoBody
			c.emu.Server.ServeHTTP(w, r)
			if w.fromFiles != 900_000 || !bytes.Equal(w.Body.Bytes(), body[1000:901_000]) {
				t.Errorf("%d of 900000 bytes from files", w.fromFiles)
			}
		}
	})
}

func TestTooManyRequestsAreRefused(t *testing.T) {
	c := start(t, ossemu.Config{})
	c.put("key", nil)
	if err := c.emu.Server.SetShape(ossemu.Shape{QPS: 0.001}); err != nil {
		t.Fatal(err)
	}
	c.want(200, c.object("HEAD", "key", ""))
	c.refused(429, "QpsLimitExceeded", c.object("HEAD", "key", ""))
	if err := c.emu.Server.SetShape(ossemu.Shape{}); err != nil {
		t.Fatal(err)
	}
	c.want(200, c.object("HEAD", "key", ""))
}

func TestShapedBytesAreTheSameBytes(t *testing.T) {
	c := start(t, ossemu.Config{Shape: ossemu.Shape{Download: 200e6, Upload: 200e6, DownloadPerConnection: 100e6, UploadPerConnection: 100e6}})
	body := pattern(3 << 20)
	c.put("key", body)
	if got := c.get("key").body; !bytes.Equal(got, body) {
		t.Error("content differs")
	}
	if err := c.emu.Server.SetShape(ossemu.Shape{RoundTrip: time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	c.get("key")
}
