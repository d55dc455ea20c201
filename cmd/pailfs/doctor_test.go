package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/doctor"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/programtest"
	"github.com/pailfs/pailfs/oss/ossemu"
)

// diagnose runs pailfs doctor --json on a bucket, and returns the findings by their checks.
func diagnose(t *testing.T, env []string, args ...string) (map[string]doctor.Finding, int) {
	t.Helper()
	o := programtest.Run(t, env, append([]string{"doctor", "--json"}, args...)...)
	var r doctor.Report
	if err := json.Unmarshal([]byte(o.Stdout), &r); err != nil {
		t.Fatalf("%v: %s%s", err, o.Stdout, o.Stderr)
	}
	found := map[string]doctor.Finding{}
	for _, f := range r.Findings {
		found[f.Check] = f
	}
	if want := map[doctor.Level]int{doctor.OK: 0, doctor.Warn: 1, doctor.Fail: 2}[r.Level]; o.Code != want {
		t.Errorf("exit code %d with level %s", o.Code, r.Level)
	}
	return found, o.Code
}

func TestDoctorFindsABucketWell(t *testing.T) {
	s := programtest.StartStore(t)
	s.Put(t, "train/a", []byte("content"))
	found, _ := diagnose(t, programtest.Environ(), "oss://"+programtest.TestBucket+"/train", "--endpoint", s.Endpoint, "--write-test")
	for _, name := range []string{"endpoint", "clock", "credentials", "region", "right: list", "right: get", "right: put", "throttling"} {
		if found[name].Level != doctor.OK {
			t.Errorf("%s: %+v", name, found[name])
		}
	}
	// What was written to try it is gone, and nothing is written without being asked.
	if keys, err := s.Keys(programtest.TestBucket, ""); err != nil || len(keys) != 1 {
		t.Errorf("the bucket has %v, %v", keys, err)
	}
	found, _ = diagnose(t, programtest.Environ(), "oss://"+programtest.TestBucket+"/train", "--endpoint", s.Endpoint)
	if _, tried := found["right: put"]; tried {
		t.Error("it wrote without --write-test")
	}
}

// TestDoctorFindsWhatIsWrong: the check that fails says why, and the exit code is 2.
func TestDoctorFindsWhatIsWrong(t *testing.T) {
	bucket := "oss://" + programtest.TestBucket
	for name, c := range map[string]struct {
		env    []string
		args   func(*programtest.Store) []string
		change func(*ossemu.Config)
		faults []ossemu.Fault
		check  string
		says   string
	}{
		"wrong secret": {
			env:   []string{"OSS_ACCESS_KEY_SECRET=wrong"},
			check: "right: list", says: "secret",
		},
		"unknown key": {
			env:   []string{"OSS_ACCESS_KEY_ID=LTAInobodyknowsthis"},
			check: "right: list", says: "key",
		},
		"no key": {
			env:   []string{"OSS_ACCESS_KEY_ID="},
			check: "credentials", says: "OSS_ACCESS_KEY_ID",
		},
		"wrong bucket": {
			args:  func(s *programtest.Store) []string { return []string{"oss://no-such-bucket", "--endpoint", s.Endpoint} },
			check: "right: list", says: "no-such-bucket",
		},
		"nobody at the endpoint": {
			args:  func(*programtest.Store) []string { return []string{bucket, "--endpoint=http://" + closedPort(t)} },
			check: "endpoint", says: "refused",
		},
		"skewed clock": {
			change: func(c *ossemu.Config) { c.Now = func() time.Time { return time.Now().Add(time.Hour) } },
			check:  "right: list", says: "clock",
		},
		"no right to get": {
			faults: []ossemu.Fault{{Operation: "HeadObject", Kind: ossemu.FaultError, Code: "AccessDenied", Status: http.StatusForbidden}},
			check:  "right: get", says: "access denied",
		},
		"no right to put": {
			args:   func(s *programtest.Store) []string { return []string{bucket, "--endpoint", s.Endpoint, "--write-test"} },
			faults: []ossemu.Fault{{Operation: "PutObject", Kind: ossemu.FaultError, Code: "AccessDenied", Status: http.StatusForbidden}},
			check:  "right: put", says: "AccessDenied",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := programtest.StartStore(t, func(cfg *ossemu.Config) {
				if c.change != nil {
					c.change(cfg)
				}
			})
			if c.change == nil {
				s.Put(t, "a", []byte("content"))
			}
			if err := s.SetFaults(c.faults); err != nil {
				t.Fatal(err)
			}
			args := []string{bucket, "--endpoint", s.Endpoint}
			if c.args != nil {
				args = c.args(s)
			}
			found, code := diagnose(t, programtest.Environ(c.env...), args...)
			if f := found[c.check]; code != 2 || f.Level != doctor.Fail || !strings.Contains(f.Text, c.says) || f.Remedy == "" {
				t.Errorf("exit code %d, %s: %+v, want something of %q", code, c.check, f, c.says)
			}
		})
	}
}

// TestDoctorSeesThrottling: the store says to slow down, and all is answered in the end.
func TestDoctorSeesThrottling(t *testing.T) {
	s := programtest.StartStore(t)
	s.Put(t, "a", []byte("content"))
	if err := s.SetFaults([]ossemu.Fault{{Operation: "ListObjectsV2", Kind: ossemu.FaultError, Code: "QpsLimitExceeded", Skip: 1, Count: 4}}); err != nil {
		t.Fatal(err)
	}
	found, _ := diagnose(t, programtest.Environ(), "oss://"+programtest.TestBucket, "--endpoint", s.Endpoint)
	if f := found["throttling"]; f.Level != doctor.Warn || !strings.Contains(f.Text, "to slow down") {
		t.Errorf("%+v", found)
	}
}

// TestDoctorLooksAtTheHostAlone: without a bucket nothing else is asked for.
func TestDoctorLooksAtTheHostAlone(t *testing.T) {
	found, _ := diagnose(t, programtest.Environ()[:1], "--cache-dir", t.TempDir())
	for _, name := range []string{"kernel", "fuse", "passthrough", "open files", "io limits", "cache disk"} {
		if found[name].Level == "" {
			t.Errorf("it says nothing of %s: %+v", name, found)
		}
	}
	if len(found) != 6 {
		t.Errorf("%+v", found)
	}
	o := programtest.Run(t, programtest.Environ(), "doctor")
	if !strings.Contains(o.Stdout, " kernel ") || o.Stderr != "" {
		t.Errorf("it printed %q and said %q", o.Stdout, o.Stderr)
	}
	if o := programtest.Run(t, programtest.Environ(), "doctor", "oss://"+programtest.TestBucket); o.Code != 2 || !strings.Contains(o.Stderr, "no endpoint is set") {
		t.Errorf("exit code %d, %s", o.Code, o.Stderr)
	}
}
