package mounting

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/programtest"
	"github.com/pailfs/pailfs/oss/ossemu"
)

// metadataService answers as that of a hardened ECS instance.
type metadataService struct {
	*httptest.Server
	// notice is when the machine is taken back, "" if that is not known.
	notice atomic.Pointer[string]
	asked  atomic.Int64
}

func startMetadata(t *testing.T) *metadataService {
	t.Helper()
	m := new(metadataService)
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/latest/api/token" && r.Method == http.MethodPut && r.Header.Get("X-aliyun-ecs-metadata-token-ttl-seconds") != "":
			_, _ = w.Write([]byte("token"))
		case r.Header.Get("X-aliyun-ecs-metadata-token") != "token":
			http.Error(w, "no token", http.StatusForbidden)
		case r.URL.Path == "/latest/meta-data/instance/spot/termination-time" && m.notice.Load() != nil:
			_, _ = w.Write([]byte(*m.notice.Load()))
		default:
			m.asked.Add(1)
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(m.Close)
	return m
}

// TestSpotNoticeDrains: with the notice uploads come first, and log, status and
// metrics say what is not safe, and then that all is.
func TestSpotNoticeDrains(t *testing.T) {
	t.Parallel()
	s, m := programtest.StartStore(t), startMetadata(t)
	f, at := programtest.WritableMount(t, s, filepath.Join(t.TempDir(), "cache"), "--spot-notice", m.URL, "--http=0", "--upload-bandwidth=64KiB")
	programtest.Eventually(t, "the metadata service is asked", func() bool { return m.asked.Load() > 0 })
	if r := programtest.StatusOf(t, at); r.Drain != nil {
		t.Fatalf("it drains without a notice: %+v", r.Drain)
	}
	if err := s.SetFaults([]ossemu.Fault{{Operation: "PutObject", Kind: ossemu.FaultError, Code: "InternalError"}}); err != nil {
		t.Fatal(err)
	}
	programtest.WriteFile(t, filepath.Join(at, "precious"), strings.Repeat("x", 1<<20))
	deadline := time.Now().Add(4 * time.Minute).UTC().Truncate(time.Second)
	text := deadline.Format(time.RFC3339)
	m.notice.Store(&text)
	programtest.Eventually(t, "status tells of the notice", func() bool {
		r := programtest.StatusOf(t, at)
		return r.Drain != nil && r.Drain.Reason == "spot notice" && r.Drain.Deadline.Equal(deadline) && !r.Drain.Safe && r.Drain.Unsafe == 1
	})
	if out := programtest.MustRun(t, "status", at).Stdout; !strings.Contains(out, "NOT in the object store") {
		t.Errorf("status says %s", out)
	}
	if out := programtest.MustRun(t, "drain", at).Stdout; !strings.Contains(out, "1 changes") {
		t.Errorf("drain says %s", out)
	}
	if _, text := programtest.Get(t, programtest.StatusOf(t, at).HTTP, "/metrics", ""); !strings.Contains(text, "pailfs_drain_active 1") {
		t.Error("the metrics do not tell that it drains")
	}
	programtest.Eventually(t, "the log names what is not safe", func() bool {
		return strings.Contains(f.Log.String(), "not safe yet") && strings.Contains(f.Log.String(), "precious")
	})
	if err := s.SetFaults(nil); err != nil {
		t.Fatal(err)
	}
	programtest.Eventually(t, "everything is safe", func() bool { r := programtest.StatusOf(t, at); return r.Drain != nil && r.Drain.Safe })
	s.Holds(t, "precious", strings.Repeat("x", 1<<20))
	programtest.MustRun(t, "umount", at)
	if code := f.Code(t); code != 0 {
		t.Errorf("the daemon ended with %d", code)
	}
}

func TestDrainByCommandAndSignal(t *testing.T) {
	t.Parallel()
	s := programtest.StartStore(t)
	f, at := programtest.WritableMount(t, s, filepath.Join(t.TempDir(), "cache"))
	if out := programtest.MustRun(t, "drain", "--within", "2m", at).Stdout; !strings.Contains(out, "everything that was written is in the object store") {
		t.Errorf("drain says %s", out)
	}
	if r := programtest.StatusOf(t, at).Drain; r == nil || time.Until(r.Deadline) > 2*time.Minute || !strings.Contains(r.Reason, "pailfs drain") {
		t.Errorf("status says %+v", r)
	}
	programtest.MustRun(t, "drain", "--stop", at)
	if r := programtest.StatusOf(t, at).Drain; r != nil {
		t.Errorf("status says %+v", r)
	}
	if err := f.Process.Signal(unix.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	programtest.Eventually(t, "the signal drains", func() bool { r := programtest.StatusOf(t, at).Drain; return r != nil && r.Reason == "SIGUSR1" })
	programtest.MustRun(t, "umount", at)
	if code := f.Code(t); code != 0 {
		t.Errorf("the daemon ended with %d", code)
	}
}
