package conformance

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pailfs/pailfs/oss/ossemu"
)

// perRun is how many tests share a process and an emulator.
const perRun = 12

// TestSDKv1Suite runs the integration tests of SDK v1.
func TestSDKv1Suite(t *testing.T) {
	t.Parallel()
	s := suite{module: "sdkv1", sdk: "github.com/aliyun/aliyun-oss-go-sdk"}
	binary, samples := s.build(t), filepath.Join(s.source(t), "sample")
	list := &job{dir: t.TempDir(), args: []string{"-check.list"}, limit: time.Minute}
	if list.run(t.Context(), binary); list.err != nil {
		t.Fatal(list.err)
	}
	ex := readExclusions(t, "sdkv1/exclusions.txt")
	wanted, excluded := ex.split(t, checkNames(list.output))

	var jobs []*job
	for name, tests := range bySuite(wanted) {
		for part := range slices.Chunk(tests, perRun) {
			j := &job{
				name: name, tests: part, dir: workDir(t, samples), limit: 10 * time.Minute,
				args: []string{"-check.v", "-check.f", only(part), "-test.timeout=0"},
			}
			if name == slowly {
				j.addr = emulateSlowly(t, ossemu.Shape{UploadPerConnection: 10 << 20})
			} else {
				j.addr = emulate(t)
			}
			jobs = append(jobs, j)
		}
	}
	runAll(t, binary, jobs)
	for _, j := range jobs {
		t.Run(j.name, func(t *testing.T) { j.wantPassed(t, checkOutcomes(j.output)) })
	}
	if !full() {
		return
	}
	jobs = nil
	for _, test := range excluded {
		// One process each: some end the process, or wait for what never comes.
		jobs = append(jobs, &job{
			name: test, tests: []string{test}, dir: workDir(t, samples), addr: emulate(t), limit: time.Minute,
			args: []string{"-check.v", "-check.f", only([]string{test})},
		})
	}
	runAll(t, binary, jobs)
	for _, j := range jobs {
		t.Run("Excluded"+j.name, func(t *testing.T) { ex.wantNotPassed(t, j, checkOutcomes(j.output)) })
	}
}

// workDir makes a directory as the tests expect to be started in: the samples
// are beside it, and may be written beside.
func workDir(t *testing.T, samples string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "oss")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(filepath.Dir(dir), "sample"), os.DirFS(samples)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// checkNames picks "Suite.Test" lines out of a listing.
func checkNames(listing string) []string {
	return regexp.MustCompile(`(?m)^Oss\w+\.Test\w+$`).FindAllString(listing, -1)
}

// slowly is the group of tests that need a server slower than loopback: they
// want an upload of 5 MB not to end within 100 ms.
const slowly = "Slowly"

var needSlowServer = []string{"OssBucketSuite.TestContextTimeoutBigFile"}

// bySuite groups tests by the part of their name before the dot.
func bySuite(tests []string) map[string][]string {
	groups := make(map[string][]string)
	for _, test := range tests {
		name, _, _ := strings.Cut(test, ".")
		if slices.Contains(needSlowServer, test) {
			name = slowly
		}
		groups[name] = append(groups[name], test)
	}
	return groups
}

// only is a pattern that the given tests match and no others.
func only(tests []string) string {
	quoted := make([]string, len(tests))
	for i, test := range tests {
		quoted[i] = regexp.QuoteMeta(test)
	}
	return "^(" + strings.Join(quoted, "|") + ")$"
}

// verdictLine is how gocheck says that a test has ended.
var verdictLine = regexp.MustCompile(`(?m)^(PASS|FAIL|PANIC|SKIP|MISS|FAIL EXPECTED): \S+: (\w+\.\w+)`)

// checkOutcomes reads the output of gocheck. The log of a test follows its
// verdict.
func checkOutcomes(output string) map[string]outcome {
	got := make(map[string]outcome)
	found := verdictLine.FindAllStringSubmatchIndex(output, -1)
	for i, m := range found {
		end := len(output)
		if i+1 < len(found) {
			end = found[i+1][0]
		}
		got[output[m[4]:m[5]]] = outcome{verdict: output[m[2]:m[3]], log: output[m[0]:end]}
	}
	return got
}
