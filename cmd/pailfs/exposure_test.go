package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sdk "github.com/aliyun/aliyun-oss-go-sdk/oss"
	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/safepath"
	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/oss/ossemu"
)

// revoke makes the store refuse every request until restore is called.
func (s *scene) revoke() (restore func()) {
	s.t.Helper()
	set := func(faults ...ossemu.Fault) {
		if err := s.SetFaults(faults); err != nil {
			s.t.Fatal(err)
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
			s := newScene(t)
			s.put(t, "dir/other", content)
			s.put(t, "dir/vault", content)
			p := newPublisher(s)
			p.publish(p.build(nil))
			f := startForeground(t, environ(), s.at, s.mountArgs(append(flags, "--http=0")...)...)
			s.reads()
			open, err := os.Open(filepath.Join(s.at, "dir/file"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = open.Close() }()
			web := statusOf(t, s.at).HTTP
			refused := func() string {
				r := statusOf(t, s.at)
				_, health := get(t, web, "/healthz", "")
				_, metrics := get(t, web, "/metrics", "")
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
			restore := s.revoke()
			// What was not read yet is refused, whoever asks.
			if _, err := os.ReadFile(filepath.Join(s.at, "dir/other")); !os.IsPermission(err) {
				t.Errorf("what is not cached: %v", err)
			}
			if got := refused(); got != all {
				t.Errorf("after the first refusal: %s", got)
			}
			// What is open is read on, from whichever tier.
			if text, err := io.ReadAll(open); err != nil || string(text) != string(content) {
				t.Errorf("read of an open file: %d bytes, %v", len(text), err)
			}
			if name == "can be written" {
				if _, err := os.Stat(filepath.Join(s.at, "dir/file")); !os.IsPermission(err) {
					t.Errorf("a name whose time is over: %v", err)
				}
			} else {
				s.reads()
			}
			if !strings.Contains(f.log.String(), "the object store refuses access") {
				t.Error("the log does not say it")
			}
			restore()
			if _, err := os.ReadFile(filepath.Join(s.at, "dir/other")); err != nil {
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
				if _, err := os.ReadFile(filepath.Join(s.at, "dir/vault")); !os.IsPermission(err) {
					t.Errorf("what is refused: %v", err)
				}
			}
			if got := refused(); got != none {
				t.Errorf("after one name was refused: %s", got)
			}
			_ = open.Close()
			mustRun(t, "umount", s.at)
		})
	}
}

func TestPlainHTTPIsWarnedOfAndRefusedWithATokenOnly(t *testing.T) {
	source := func(token string) *oss.CredentialSource {
		s, err := oss.OpenCredentials(oss.CredentialsConfig{
			Kind: oss.CredentialsStatic, AccessKeyID: testKeyID, AccessKeySecret: testSecret, SecurityToken: token,
		}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	plain, session := source(""), source("a token of a session")
	for _, row := range []struct {
		endpoint         string
		keys             *oss.CredentialSource
		allow            bool
		warned, refusing bool
	}{
		{"https://oss.example", session, false, false, false},
		{"oss.example", session, false, false, false},
		{"http://oss.example", plain, false, true, false},
		{"http://oss.example", nil, false, true, false},
		{"http://oss.example", session, false, false, true},
		{"http://oss.example", session, true, true, false},
		{"http://10.0.0.1:9000", session, false, false, true},
		{"http://127.0.0.1:9000", session, false, false, false},
		{"http://[::1]:9000", session, false, false, false},
		{"http://localhost:9000", session, false, false, false},
		{"http://localhost.example", session, false, false, true},
	} {
		warning, err := checkPlainHTTP(&config.Config{Endpoint: row.endpoint, AllowPlainHTTP: row.allow}, row.keys)
		if (warning != "") != row.warned || (err != nil) != row.refusing {
			t.Errorf("%+v: warned %q, refused %v", row, warning, err)
		}
	}
	// Before any request.
	o := run(t, environ("OSS_SESSION_TOKEN=token-of-a-session"), "mount", "oss://"+testBucket, newMountPoint(t), "--endpoint=http://192.0.2.1")
	if o.code != 1 || !strings.Contains(o.stderr, "--endpoint") || !strings.Contains(o.stderr, "allow-plain-http") {
		t.Errorf("%+v", o)
	}
	o = run(t, environ("OSS_SESSION_TOKEN=token-of-a-session"), "manifest", "show", "oss://"+testBucket, "--endpoint=http://192.0.2.1")
	if o.code != 1 || !strings.Contains(o.stderr, "allow-plain-http") {
		t.Errorf("%+v", o)
	}
}

func TestManifestOfAnotherBucketIsRefused(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	p := newPublisher(s)
	info, err := p.bucket.Head(t.Context(), "dir/file")
	if err != nil {
		t.Fatal(err)
	}
	foreign := manifestOf(t, "", "another-bucket", info.Object)
	o := run(t, environ(), s.mountArgs("--read-only", "--manifest="+foreign)...)
	if o.code != 1 || !strings.Contains(o.stderr, "another-bucket") || !strings.Contains(o.stderr, testBucket) {
		t.Errorf("a manifest of another bucket: %+v", o)
	}
	o = run(t, environ(), "mount", "oss://"+testBucket+"/dir", s.at, "--endpoint="+s.endpoint, "--memory=64MiB", "--manifest="+manifestOf(t, "elsewhere/", testBucket))
	if o.code != 1 || !strings.Contains(o.stderr, `those under "dir/"`) {
		t.Errorf("a manifest of another prefix: %+v", o)
	}
	p.number = 1
	p.publish(foreign)
	for _, mode := range []string{"frozen", "follow"} {
		if o = run(t, environ(), s.mountArgs("--read-only", "--manifest="+mode)...); o.code != 1 || !strings.Contains(o.stderr, "another-bucket") {
			t.Errorf("published, %s: %+v", mode, o)
		}
	}
	own := manifestOf(t, "", testBucket, info.Object)
	if err := os.Chmod(own, 0o666); err != nil {
		t.Fatal(err)
	}
	reachable(t, own)
	startForeground(t, environ(), s.at, s.mountArgs("--read-only", "--manifest="+own)...)
	s.reads()
	if exposed(t, own) {
		if w := strings.Join(statusOf(t, s.at).Warnings, "\n"); !strings.Contains(w, "--manifest "+own+" can be replaced by others") {
			t.Errorf("warnings %q of a manifest that others may write", w)
		}
	}
	mustRun(t, "umount", s.at)
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

func TestPathsThatOthersCanReplaceAreRefusedOrWarnedOf(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	open := filepath.Join(t.TempDir(), "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	reachable(t, open)
	keys := filepath.Join(open, "keys")
	if err := os.WriteFile(keys, []byte(`{"AccessKeyId":"`+testKeyID+`","AccessKeySecret":"`+testSecret+`"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if !exposed(t, keys) {
		t.Log("others do not get to the directory for temporary files; nothing is to be refused here")
		return
	}
	for _, flags := range [][]string{
		{"--log-file=" + filepath.Join(open, "log")},
		{"--credentials=file", "--credentials-file=" + keys},
	} {
		o := run(t, environ(), s.mountArgs(flags...)...)
		name, _, _ := strings.Cut(flags[len(flags)-1], "=")
		if o.code != 1 || !strings.Contains(o.stderr, name) || !strings.Contains(o.stderr, "everybody") {
			t.Errorf("%v: %+v", flags, o)
		}
	}
	o := run(t, environ(), "manifest", "show", "oss://"+testBucket, "--endpoint="+s.endpoint, "--credentials=file", "--credentials-file="+keys)
	if o.code != 1 || !strings.Contains(o.stderr, "everybody") {
		t.Errorf("a command: %+v", o)
	}
	s.cache = filepath.Join(open, "cache")
	startForeground(t, environ(), s.at, s.mountArgs()...)
	if w := strings.Join(statusOf(t, s.at).Warnings, "\n"); !strings.Contains(w, "--cache-dir "+s.cache+" can be replaced by others") {
		t.Errorf("warnings %q of a cache that others can replace", w)
	}
	mustRun(t, "umount", s.at)
}

// An emptyDir of Kubernetes has such a mode.
func TestDirectoryForEverybodyBecomesTheCachesOwn(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.cache = filepath.Join(t.TempDir(), "emptyDir")
	if err := os.Mkdir(s.cache, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(s.cache, 0o777); err != nil {
		t.Fatal(err)
	}
	reachable(t, s.cache)
	// The second time as a container that was started again.
	for range 2 {
		startForeground(t, environ(), s.at, s.mountArgs()...)
		if w := strings.Join(statusOf(t, s.at).Warnings, "\n"); strings.Contains(w, "--cache-dir") {
			t.Errorf("warnings %q of a directory that is the cache's own", w)
		}
		if info, err := os.Stat(s.cache); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("the cache directory is %v, %v", info.Mode(), err)
		}
		s.reads()
		mustRun(t, "umount", s.at)
	}
}

// What manifest/NAMES.md says of links that lead out of the mounted prefix.
func TestLinksThatLeadOutOfThePrefixAreRefused(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.put(t, "secret/file", content)
	client, err := sdk.New(s.endpoint, testKeyID, testSecret, sdk.HTTPClient(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}))
	if err != nil {
		t.Fatal(err)
	}
	bucket, err := client.Bucket(testBucket)
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
	for _, flags := range [][]string{{"--manifest=off", "--attrs=none"}, {"--manifest=off"}, {"--manifest=off", "--read-only", "--immutable"}} {
		startForeground(t, environ(), s.at, append([]string{
			"mount", "oss://" + testBucket + "/dir", s.at, "--endpoint=" + s.endpoint, "--cache-dir=" + s.cache, "--memory=64MiB",
		}, flags...)...)
		if text, err := os.ReadFile(filepath.Join(s.at, "within")); err != nil || string(text) != string(content) {
			t.Errorf("%v: a link within: %d bytes, %v", flags, len(text), err)
		}
		buf := make([]byte, 256)
		for _, name := range []string{"out", "own"} {
			if n, err := unix.Readlink(filepath.Join(s.at, name), buf); err != unix.EACCES {
				t.Errorf("%v: %s leads to %q, %v", flags, name, buf[:max(n, 0)], err)
			}
			if _, err := os.ReadFile(filepath.Join(s.at, name)); !os.IsPermission(err) {
				t.Errorf("%v: reading %s: %v", flags, name, err)
			}
		}
		if text, err := os.ReadFile(filepath.Join(s.at, "up")); err == nil {
			t.Errorf("%v: a link upward leads to %d bytes", flags, len(text))
		}
		mustRun(t, "umount", s.at)
	}
}
