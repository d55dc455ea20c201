package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/programtest"
	"github.com/pailfs/pailfs/oss/ossemu"
)

// situation is what a row of the table may spoil before the program runs.
type situation struct {
	t     *testing.T
	store *programtest.Store
	at    string
	cache string
	// dir is a directory for whatever else is needed.
	dir  string
	env  []string
	args []string
	role string
}

// flag adds flags.
func (s *situation) flag(args ...string) { s.args = append(s.args, args...) }

// file writes a file and returns its path.
func (s *situation) file(name, text string, mode os.FileMode) string {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// setenv replaces a variable.
func (s *situation) setenv(name, value string) { s.env = append(s.env, name+"="+value) }

// closedPort returns an address at which nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// silentListener takes connections and never answers.
func silentListener(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// badInput is the table: what is spoiled, and what the one line must say.
var badInput = map[string]struct {
	spoil func(*situation)
	// change is how the emulator differs.
	change func(*ossemu.Config)
	want   []string
	code   int
}{
	"no endpoint": {
		spoil: func(s *situation) { s.flag("--endpoint=") },
		want:  []string{"no endpoint is set", "--endpoint"}, code: 2,
	},
	"endpoint that does not resolve": {
		spoil: func(s *situation) { s.flag("--endpoint=http://oss.nowhere.invalid") },
		want:  []string{"oss.nowhere.invalid", "endpoint"}, code: 1,
	},
	"endpoint that refuses": {
		spoil: func(s *situation) { s.flag("--endpoint=http://" + closedPort(s.t)) },
		want:  []string{"refused", "endpoint"}, code: 1,
	},
	"endpoint that never answers": {
		spoil: func(s *situation) {
			s.flag("--endpoint=http://"+silentListener(s.t).Addr().String(), "--start-timeout=500ms")
		},
		want: []string{"did not answer", "endpoint"}, code: 1,
	},
	"https endpoint that speaks http": {
		spoil: func(s *situation) { s.flag("--endpoint=" + strings.Replace(s.store.Endpoint, "http:", "https:", 1)) },
		want:  []string{"http://"}, code: 1,
	},
	"http endpoint that speaks https": {
		spoil: func(s *situation) {
			tls := httptest.NewTLSServer(http.NotFoundHandler())
			s.t.Cleanup(tls.Close)
			s.flag("--endpoint=" + strings.Replace(tls.URL, "https:", "http:", 1))
		},
		want: []string{"https://"}, code: 1,
	},
	"bucket that does not exist": {
		spoil: func(s *situation) { s.args[1] = "oss://no-such-bucket" },
		want:  []string{"no-such-bucket", "bucket"}, code: 1,
	},
	"bucket that cannot exist": {
		spoil: func(s *situation) { s.args[1] = "oss://Bucket_1" },
		want:  []string{`"Bucket_1"`, "lower-case letters"}, code: 2,
	},
	"region of another bucket": {
		spoil:  func(s *situation) { s.flag("--region=cn-beijing") },
		change: func(c *ossemu.Config) { c.Region = programtest.TestRegion },
		want:   []string{"cn-beijing", "region"}, code: 1,
	},
	"region that is an endpoint": {
		spoil: func(s *situation) { s.flag("--region=oss-cn-beijing") },
		want:  []string{"--region", `"oss-cn-beijing"`, "cn-beijing"}, code: 2,
	},
	"unknown key": {
		spoil: func(s *situation) { s.setenv("OSS_ACCESS_KEY_ID", "LTAInobodyknowsthis") },
		want:  []string{"key"}, code: 1,
	},
	"wrong secret": {
		spoil: func(s *situation) { s.setenv("OSS_ACCESS_KEY_SECRET", "wrong") },
		want:  []string{"secret"}, code: 1,
	},
	"no key": {
		spoil: func(s *situation) { s.env = programtest.Environ()[:2] },
		want:  []string{"OSS_ACCESS_KEY_ID", "--credentials"}, code: 1,
	},
	"expired token": {
		spoil: func(s *situation) {
			err := s.store.AddCredential(ossemu.Credential{
				AccessKeyID: "STS.expired", AccessKeySecret: "sts-secret", SecurityToken: "old-token", Expires: time.Now().Add(-time.Hour),
			})
			if err != nil {
				s.t.Fatal(err)
			}
			s.setenv("OSS_ACCESS_KEY_ID", "STS.expired")
			s.setenv("OSS_ACCESS_KEY_SECRET", "sts-secret")
			s.setenv("OSS_SESSION_TOKEN", "old-token")
		},
		want: []string{"token", "expired"}, code: 1,
	},
	"sts without a token": {
		spoil: func(s *situation) { s.flag("--credentials=sts") },
		want:  []string{"credentials sts", "OSS_SESSION_TOKEN"}, code: 1,
	},
	"clock that is wrong": {
		change: func(c *ossemu.Config) { c.Now = func() time.Time { return time.Now().Add(-2 * time.Hour) } },
		want:   []string{"clock"}, code: 1,
	},
	"credentials file that is missing": {
		spoil: func(s *situation) { s.flag("--credentials=file", "--credentials-file="+s.dir+"/nothing") },
		want:  []string{"/nothing", "--credentials-file"}, code: 1,
	},
	"credentials file that others can read": {
		spoil: func(s *situation) {
			path := s.file("credentials", `{"AccessKeyId":"`+programtest.TestKeyID+`","AccessKeySecret":"`+programtest.TestSecret+`"}`, 0o644)
			s.flag("--credentials=file", "--credentials-file="+path)
		},
		want: []string{"/credentials", "chmod"}, code: 1,
	},
	"credentials file that is none": {
		spoil: func(s *situation) {
			path := s.file("credentials", "AccessKeyId = "+programtest.TestKeyID, 0o600)
			s.flag("--credentials=file", "--credentials-file="+path)
		},
		want: []string{"/credentials", "JSON"}, code: 1,
	},
	"kind of credentials that is unknown": {
		spoil: func(s *situation) { s.flag("--credentials=ecs") },
		want:  []string{"--credentials", `"ecs"`, "did you mean ecs-ram-role?"}, code: 2,
	},
	"cache directory without a parent": {
		spoil: func(s *situation) { s.cache = filepath.Join(s.dir, "no", "cache") },
		want:  []string{"--cache-dir", "/no/cache", "parent"}, code: 1,
	},
	"cache directory that is relative": {
		spoil: func(s *situation) { s.cache = "cache" },
		want:  []string{"--cache-dir", `"cache"`, "relative"}, code: 2,
	},
	"cache directory that is a file": {
		spoil: func(s *situation) { s.cache = s.file("file", "", 0o600) },
		want:  []string{"--cache-dir", "/file", "not a directory"}, code: 1,
	},
	"cache directory of somebody else": {
		spoil: func(s *situation) {
			s.cache = filepath.Join(s.dir, "home")
			if err := os.Mkdir(s.cache, 0o755); err != nil {
				s.t.Fatal(err)
			}
			s.file("home/thesis.tex", "precious", 0o600)
		},
		want: []string{"--cache-dir", "/home"}, code: 1,
	},
	"cache directory on a full disk": {
		spoil: func(s *situation) {
			small := filepath.Join(s.dir, "small")
			if err := os.Mkdir(small, 0o755); err != nil {
				s.t.Fatal(err)
			}
			if err := unix.Mount("small", small, "tmpfs", 0, "size=16m"); err != nil {
				s.t.Fatal(err)
			}
			s.t.Cleanup(func() { _ = unix.Unmount(small, unix.MNT_DETACH) })
			s.cache = filepath.Join(small, "cache")
		},
		want: []string{"--cache-dir", "/small", "no room"}, code: 1,
	},
	"cache directory within the mount point": {
		spoil: func(s *situation) { s.cache = filepath.Join(s.at, "cache") },
		want:  []string{"--cache-dir", "inside the mount point"}, code: 1,
	},
	"cache larger than its disk": {
		spoil: func(s *situation) { s.flag("--cache-size=900TiB") },
		want:  []string{"--cache-size", "900TiB", "auto"}, code: 1,
	},
	"cache size that is negative": {
		spoil: func(s *situation) { s.flag("--cache-size=-5GiB") },
		want:  []string{"--cache-size", "negative"}, code: 2,
	},
	"cache size without a unit": {
		spoil: func(s *situation) { s.flag("--cache-size=500") },
		want:  []string{"--cache-size", `"500"`, "500GiB"}, code: 2,
	},
	"memory beyond the machine's": {
		spoil: func(s *situation) { s.flag("--memory=900TiB") },
		want:  []string{"--memory", "900TiB", "auto"}, code: 1,
	},
	"mount point that is missing": {
		spoil: func(s *situation) { s.args[2] = filepath.Join(s.dir, "missing") },
		want:  []string{"/missing does not exist", "mkdir"}, code: 1,
	},
	"mount point that is a file": {
		spoil: func(s *situation) { s.args[2] = s.file("file", "", 0o600) },
		want:  []string{"/file is not a directory"}, code: 1,
	},
	"mount point that is not empty": {
		spoil: func(s *situation) {
			s.args[2] = s.dir
			s.file("thesis.tex", "precious", 0o600)
		},
		want: []string{"is not empty", "empty directory"}, code: 1,
	},
	"mount point within the cache directory": {
		spoil: func(s *situation) {
			s.cache = s.dir
			s.args[2] = filepath.Join(s.dir, "mnt")
			if err := os.Mkdir(s.args[2], 0o755); err != nil {
				s.t.Fatal(err)
			}
		},
		want: []string{"inside the cache directory"}, code: 1,
	},
	"configuration with an unknown key": {
		spoil: func(s *situation) { s.flag("--config=" + s.file("pailfs.yaml", "\ncache_dri: /ssd\n", 0o600)) },
		want:  []string{"pailfs.yaml:2", `"cache_dri"`, "did you mean cache_dir?"}, code: 2,
	},
	"configuration that is missing": {
		spoil: func(s *situation) { s.flag("--config=" + s.dir + "/none.yaml") },
		want:  []string{"/none.yaml", "no such file", "--config"}, code: 2,
	},
	"misspelled variable": {
		spoil: func(s *situation) { s.setenv("PAILFS_CACHEDIR", "/ssd") },
		want:  []string{"PAILFS_CACHEDIR", "did you mean PAILFS_CACHE_DIR?"}, code: 2,
	},
	"misspelled flag": {
		spoil: func(s *situation) { s.flag("--cache-dri=/ssd") },
		want:  []string{"--cache-dri", `"--cache-dir"`}, code: 2,
	},
	"attributes that are not there yet": {
		spoil: func(s *situation) { s.flag("--attrs=oss"); s.flag("--read-only"); s.flag("--manifest=frozen") },
		want:  []string{"--attrs", "oss", "set manifest"}, code: 2,
	},
	"address that is reachable": {
		spoil: func(s *situation) { s.flag("--http=0.0.0.0:0") },
		want:  []string{"--http", `"0.0.0.0:0"`, "127.0.0.1"}, code: 2,
	},
	"address that is taken": {
		spoil: func(s *situation) {
			s.flag("--http=" + strings.TrimPrefix(s.store.Endpoint, "http://"))
			s.flag("--http-required")
		},
		want: []string{"--http", "in use", "another port"}, code: 1,
	},
	"log file without a directory": {
		spoil: func(s *situation) { s.flag("--log-file=" + s.dir + "/no/pailfs.log") },
		want:  []string{"--log-file", "/no/pailfs.log", "directory that exists"}, code: 1,
	},
	"no /dev/fuse": {
		spoil: func(s *situation) { s.role = "without /dev/fuse" },
		want:  []string{"/dev/fuse", "modprobe fuse"}, code: 1,
	},
	"no CAP_SYS_ADMIN": {
		spoil: func(s *situation) { s.role = "without CAP_SYS_ADMIN" },
		want:  []string{"CAP_SYS_ADMIN", "--cap-add"}, code: 1,
	},
}

func TestBadInputIsRefusedOnOneLineAndLeavesNothing(t *testing.T) {
	for name, row := range badInput {
		for _, detach := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", detached"}[detach], func(t *testing.T) {
				t.Parallel()
				s := &situation{t: t, at: programtest.NewMountPoint(t), dir: t.TempDir(), env: programtest.Environ()}
				s.cache = filepath.Join(s.dir, "cache")
				if row.change != nil {
					s.store = programtest.StartStore(t, row.change)
				} else {
					s.store = programtest.StartStore(t)
				}
				s.args = []string{"mount", "oss://" + programtest.TestBucket, s.at, "--endpoint=" + s.store.Endpoint}
				if row.spoil != nil {
					row.spoil(s)
				}
				s.flag("--cache-dir=" + s.cache)
				if detach {
					s.flag("--detach")
				}
				before := tree(t, s.dir)
				o := s.run()
				s.expect(o, row.code, row.want)
				if after := tree(t, s.dir); after != before {
					t.Errorf("something was left behind; before:\n%safter:\n%s", before, after)
				}
				if programtest.IsMounted(t, s.at) {
					t.Error("something is mounted")
				}
				programtest.Eventually(t, "no daemon is left", func() bool { return len(programtest.DaemonsOf(t, s.args[2])) == 0 })
			})
		}
	}
}

// run runs the program, through this test program where it must lack something.
func (s *situation) run() programtest.Outcome {
	s.t.Helper()
	if s.role == "" {
		return programtest.Run(s.t, s.env, s.args...)
	}
	s.setenv("PAILFS_TEST_ROLE", s.role)
	return programtest.RunAs(s.t, &syscall.SysProcAttr{}, s.env, "/proc/self/exe", append([]string{programtest.Binary}, s.args...)...)
}

// expect checks the exit code and that the only output is one proper line.
func (s *situation) expect(o programtest.Outcome, code int, want []string) {
	s.t.Helper()
	if o.Code != code {
		s.t.Errorf("exit code %d, want %d", o.Code, code)
	}
	if o.Stdout != "" {
		s.t.Errorf("standard output: %q", o.Stdout)
	}
	lines := strings.Split(strings.TrimSuffix(o.Stderr, "\n"), "\n")
	if len(lines) != 1 || !strings.HasPrefix(lines[0], "pailfs: ") {
		s.t.Errorf("want one line beginning with \"pailfs: \", got:\n%s", o.Stderr)
	}
	for _, w := range want {
		if !strings.Contains(o.Stderr, w) {
			s.t.Errorf("the line does not say %q: %s", w, o.Stderr)
		}
	}
}

// tree returns the names and sizes of everything below a directory.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		if !info.IsDir() {
			b.WriteString(info.Mode().String() + " ")
		}
		b.WriteString(path + "\n")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}
