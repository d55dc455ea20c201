package mounting

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sdk "github.com/aliyun/aliyun-oss-go-sdk/oss"
	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/programtest"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/safepath"
	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/oss/ossemu"
)

// revoke makes the store refuse every request until restore is called.
func revoke(s *programtest.Scene) (restore func()) {
	s.T.Helper()
	set := func(faults ...ossemu.Fault) {
		if err := s.SetFaults(faults); err != nil {
			s.T.Fatal(err)
		}
	}
	set(ossemu.Fault{Kind: ossemu.FaultError, Code: "InvalidAccessKeyId"})
	return func() { set() }
}

// What SECURITY.md says of keys that were revoked.
func TestRevokedKeysAreSaidAndWhatIsCachedIsServed(t *testing.T) {
	for name, flags := range map[string][]string{
		"immutable":      {"--read-only", "--immutable", "--manifest=off"},
		"frozen":         {"--read-only", "--manifest=frozen"},
		"can be written": {"--metadata-ttl=0s", "--manifest=off"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := programtest.NewScene(t)
			s.Put(t, "dir/other", programtest.Content)
			s.Put(t, "dir/vault", programtest.Content)
			p := programtest.NewPublisher(s)
			p.Publish(p.Build(nil))
			f := programtest.StartForeground(t, programtest.Environ(), s.At, s.MountArgs(append(flags, "--http=0")...)...)
			s.Reads()
			open, err := os.Open(filepath.Join(s.At, "dir/file"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = open.Close() }()
			web := programtest.StatusOf(t, s.At).HTTP
			refused := func() string {
				r := programtest.StatusOf(t, s.At)
				_, health := programtest.Get(t, web, "/healthz", "")
				_, metrics := programtest.Get(t, web, "/metrics", "")
				said := []bool{
					r.Store.Refused != nil, strings.Contains(strings.Join(r.Warnings, "\n"), "the object store refuses access since"),
					strings.Contains(health, `"access":"refused since`), strings.Contains(metrics, "\npailfs_oss_access_refused 1\n"),
				}
				if !strings.Contains(health, `"status":"ok"`) {
					t.Errorf("health: %s", health)
				}
				return fmt.Sprint(said)
			}
			const all, none = "[true true true true]", "[false false false false]"
			if got := refused(); got != none {
				t.Errorf("before: %s", got)
			}
			restore := revoke(s)
			// What was not read yet is refused, whoever asks.
			if _, err := os.ReadFile(filepath.Join(s.At, "dir/other")); !os.IsPermission(err) {
				t.Errorf("what is not cached: %v", err)
			}
			if got := refused(); got != all {
				t.Errorf("after the first refusal: %s", got)
			}
			// What is open is read on, from whichever tier.
			if text, err := io.ReadAll(open); err != nil || string(text) != string(programtest.Content) {
				t.Errorf("read of an open file: %d bytes, %v", len(text), err)
			}
			if name == "can be written" {
				if _, err := os.Stat(filepath.Join(s.At, "dir/file")); !os.IsPermission(err) {
					t.Errorf("a name whose time is over: %v", err)
				}
			} else {
				s.Reads()
			}
			if !strings.Contains(f.Log.String(), "the object store refuses access") {
				t.Error("the log does not say it")
			}
			restore()
			if _, err := os.ReadFile(filepath.Join(s.At, "dir/other")); err != nil {
				t.Errorf("after access was granted again: %v", err)
			}
			if got := refused(); got != none {
				t.Errorf("after: %s", got)
			}
			// What nobody may read says nothing of the rest.
			if err := s.SetFaults([]ossemu.Fault{{Kind: ossemu.FaultError, Code: "AccessDenied", KeyPrefix: "dir/vault"}}); err != nil {
				t.Fatal(err)
			}
			for range 5 {
				if _, err := os.ReadFile(filepath.Join(s.At, "dir/vault")); !os.IsPermission(err) {
					t.Errorf("what is refused: %v", err)
				}
			}
			if got := refused(); got != none {
				t.Errorf("after one name was refused: %s", got)
			}
			_ = open.Close()
			programtest.MustRun(t, "umount", s.At)
		})
	}
}

// TestATokenIsRefusedOnPlainHTTPBeforeAnyRequest, by a mount and by a command.
func TestATokenIsRefusedOnPlainHTTPBeforeAnyRequest(t *testing.T) {
	o := programtest.Run(t, programtest.Environ("OSS_SESSION_TOKEN=token-of-a-session"), "mount", "oss://"+programtest.TestBucket, programtest.NewMountPoint(t), "--endpoint=http://192.0.2.1")
	if o.Code != 1 || !strings.Contains(o.Stderr, "--endpoint") || !strings.Contains(o.Stderr, "allow-plain-http") {
		t.Errorf("%+v", o)
	}
	o = programtest.Run(t, programtest.Environ("OSS_SESSION_TOKEN=token-of-a-session"), "manifest", "show", "oss://"+programtest.TestBucket, "--endpoint=http://192.0.2.1")
	if o.Code != 1 || !strings.Contains(o.Stderr, "allow-plain-http") {
		t.Errorf("%+v", o)
	}
}

// TestPlainHTTPIsSaidInLogAndStatus reaches the store by an address that is not this machine's
// own by its looks.
func TestPlainHTTPIsSaidInLogAndStatus(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	for endpoint, want := range map[string]bool{s.Endpoint: false, strings.Replace(s.Endpoint, "127.0.0.1", "0.0.0.0", 1): true} {
		s.Cache = filepath.Join(t.TempDir(), "cache") // it belongs to an endpoint
		f := programtest.StartForeground(t, programtest.Environ(), s.At, s.MountArgs("--endpoint="+endpoint)...)
		s.Reads()
		text := "the endpoint " + endpoint + " is plain HTTP"
		status := strings.Contains(strings.Join(programtest.StatusOf(t, s.At).Warnings, "\n"), text)
		people := strings.Contains(programtest.MustRun(t, "status", s.At).Stdout, "is plain HTTP")
		log := strings.Contains(f.Log.String(), text)
		if status != want || people != want || log != want {
			t.Errorf("%s: status warns %v, to people %v, the log %v, want %v", endpoint, status, people, log, want)
		}
		programtest.MustRun(t, "umount", s.At)
		f.Code(t)
	}
}

func TestManifestOfAnotherBucketIsRefused(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	p := programtest.NewPublisher(s)
	info, err := p.Bucket.Head(t.Context(), "dir/file")
	if err != nil {
		t.Fatal(err)
	}
	foreign := manifestOf(t, "", "another-bucket", info.Object)
	o := programtest.Run(t, programtest.Environ(), s.MountArgs("--read-only", "--manifest="+foreign)...)
	if o.Code != 1 || !strings.Contains(o.Stderr, "another-bucket") || !strings.Contains(o.Stderr, programtest.TestBucket) {
		t.Errorf("a manifest of another bucket: %+v", o)
	}
	o = programtest.Run(t, programtest.Environ(), "mount", "oss://"+programtest.TestBucket+"/dir", s.At, "--endpoint="+s.Endpoint, "--memory=64MiB", "--manifest="+manifestOf(t, "elsewhere/", programtest.TestBucket))
	if o.Code != 1 || !strings.Contains(o.Stderr, `those under "dir/"`) {
		t.Errorf("a manifest of another prefix: %+v", o)
	}
	p.Number = 1
	p.Publish(foreign)
	for _, mode := range []string{"frozen", "follow"} {
		if o = programtest.Run(t, programtest.Environ(), s.MountArgs("--read-only", "--manifest="+mode)...); o.Code != 1 || !strings.Contains(o.Stderr, "another-bucket") {
			t.Errorf("published, %s: %+v", mode, o)
		}
	}
	own := manifestOf(t, "", programtest.TestBucket, info.Object)
	if err := os.Chmod(own, 0o666); err != nil {
		t.Fatal(err)
	}
	reachable(t, own)
	programtest.StartForeground(t, programtest.Environ(), s.At, s.MountArgs("--read-only", "--manifest="+own)...)
	s.Reads()
	if exposed(t, own) {
		if w := strings.Join(programtest.StatusOf(t, s.At).Warnings, "\n"); !strings.Contains(w, "--manifest "+own+" can be replaced by others") {
			t.Errorf("warnings %q of a manifest that others may write", w)
		}
	}
	programtest.MustRun(t, "umount", s.At)
}

// manifestOf writes a manifest of objects below root that says that it is of bucket.
func manifestOf(t *testing.T, root, bucket string, objects ...oss.Object) string {
	t.Helper()
	b, err := manifest.NewBuilder(manifest.BuilderConfig{Root: root, SpillDir: t.TempDir(), MemoryBytes: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if err := b.Add(manifest.Record{Key: o.Key, ETag: o.ETag, Size: o.Size, ModTime: o.ModTime}); err != nil {
			t.Fatal(err)
		}
	}
	path, now := filepath.Join(t.TempDir(), "manifest"), time.Now()
	_, err = b.Finish(t.Context(), path, manifest.Header{
		Generation: 1, Began: now, Ended: now, Properties: map[string]string{manifest.BucketProperty: bucket},
	})
	if err := errors.Join(err, b.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// reachable lets others into the directories that the test made for path.
func reachable(t *testing.T, path string) {
	t.Helper()
	for dir := filepath.Dir(path); strings.Contains(dir, "/Test"); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// exposed reports whether anyone could replace path, which is so unless nobody gets to
// the directory for temporary files at all.
func exposed(t *testing.T, path string) bool {
	t.Helper()
	found, err := safepath.Find(path)
	if err != nil {
		t.Fatal(err)
	}
	e, ok := safepath.Worst(found)
	return ok && e.Anyone
}

// openToAll makes a directory in which everybody can replace what is there, wherever others get to.
func openToAll(t *testing.T) string {
	t.Helper()
	for _, parent := range []string{os.TempDir(), "/tmp", "/var/tmp", "/dev/shm"} {
		dir, err := os.MkdirTemp(parent, "pailfs-test-open-")
		if err != nil {
			continue
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) }) // what is left there is of no use
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		if exposed(t, filepath.Join(dir, "file")) {
			return dir
		}
	}
	t.Fatal("others get to no directory for temporary files: nothing can be refused")
	return ""
}

func TestPathsThatOthersCanReplaceAreRefusedOrWarnedOf(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	open := openToAll(t)
	keys := filepath.Join(open, "keys")
	if err := os.WriteFile(keys, []byte(`{"AccessKeyId":"`+programtest.TestKeyID+`","AccessKeySecret":"`+programtest.TestSecret+`"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{
		{"--log-file=" + filepath.Join(open, "log")},
		{"--audit=" + filepath.Join(open, "audit")},
		{"--credentials=file", "--credentials-file=" + keys},
	} {
		o := programtest.Run(t, programtest.Environ(), s.MountArgs(flags...)...)
		name, _, _ := strings.Cut(flags[len(flags)-1], "=")
		if o.Code != 1 || !strings.Contains(o.Stderr, name) || !strings.Contains(o.Stderr, "everybody") {
			t.Errorf("%v: %+v", flags, o)
		}
	}
	o := programtest.Run(t, programtest.Environ(), "manifest", "show", "oss://"+programtest.TestBucket, "--endpoint="+s.Endpoint, "--credentials=file", "--credentials-file="+keys)
	if o.Code != 1 || !strings.Contains(o.Stderr, "everybody") {
		t.Errorf("a command: %+v", o)
	}
	s.Cache = filepath.Join(open, "cache")
	programtest.StartForeground(t, programtest.Environ(), s.At, s.MountArgs()...)
	if w := strings.Join(programtest.StatusOf(t, s.At).Warnings, "\n"); !strings.Contains(w, "--cache-dir "+s.Cache+" can be replaced by others") {
		t.Errorf("warnings %q of a cache that others can replace", w)
	}
	programtest.MustRun(t, "umount", s.At)
}

// An emptyDir of Kubernetes has such a mode.
func TestDirectoryForEverybodyBecomesTheCachesOwn(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	s.Cache = filepath.Join(t.TempDir(), "emptyDir")
	if err := os.Mkdir(s.Cache, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(s.Cache, 0o777); err != nil {
		t.Fatal(err)
	}
	reachable(t, s.Cache)
	// The second time as a container that was started again.
	for range 2 {
		programtest.StartForeground(t, programtest.Environ(), s.At, s.MountArgs()...)
		if w := strings.Join(programtest.StatusOf(t, s.At).Warnings, "\n"); strings.Contains(w, "--cache-dir") {
			t.Errorf("warnings %q of a directory that is the cache's own", w)
		}
		if info, err := os.Stat(s.Cache); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("the cache directory is %v, %v", info.Mode(), err)
		}
		s.Reads()
		programtest.MustRun(t, "umount", s.At)
	}
}

// What manifest/NAMES.md says of links that lead out of the mounted prefix.
func TestLinksThatLeadOutOfThePrefixAreRefused(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	s.Put(t, "secret/file", programtest.Content)
	client, err := sdk.New(s.Endpoint, programtest.TestKeyID, programtest.TestSecret, sdk.HTTPClient(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}))
	if err != nil {
		t.Fatal(err)
	}
	bucket, err := client.Bucket(programtest.TestBucket)
	if err != nil {
		t.Fatal(err)
	}
	links := map[string]string{
		"dir/within": "dir/file", "dir/out": "secret/file", "dir/up": "dir/../secret/file", "dir/own": "dir/.pailfs/manifests/1",
	}
	for link, target := range links {
		if err := bucket.PutSymlink(link, target); err != nil {
			t.Fatal(err)
		}
	}
	s.Put(t, "dir/file", programtest.Content)
	programtest.MustRun(t, "manifest", "build", "oss://"+programtest.TestBucket+"/dir", "--endpoint="+s.Endpoint, "--attrs")
	for _, flags := range [][]string{
		{"--manifest=off", "--attrs=none"},
		{"--manifest=off"},
		{"--manifest=off", "--read-only", "--immutable"},
		{"--manifest=frozen", "--read-only"},
		{"--manifest=follow", "--read-only"},
		{"--manifest=follow"},
	} {
		programtest.StartForeground(t, programtest.Environ(), s.At, append([]string{
			"mount", "oss://" + programtest.TestBucket + "/dir", s.At, "--endpoint=" + s.Endpoint, "--cache-dir=" + s.Cache, "--memory=64MiB",
		}, flags...)...)
		if text, err := os.ReadFile(filepath.Join(s.At, "within")); err != nil || string(text) != string(programtest.Content) {
			t.Errorf("%v: a link within: %d bytes, %v", flags, len(text), err)
		}
		buf := make([]byte, 256)
		for _, name := range []string{"out", "own", "up"} {
			if n, err := unix.Readlink(filepath.Join(s.At, name), buf); err != unix.EACCES {
				t.Errorf("%v: %s leads to %q, %v", flags, name, buf[:max(n, 0)], err)
			}
			if _, err := os.ReadFile(filepath.Join(s.At, name)); !os.IsPermission(err) {
				t.Errorf("%v: reading %s: %v", flags, name, err)
			}
		}
		programtest.MustRun(t, "umount", s.At)
	}
}
