package conformance

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestSDKv2Suite runs the integration tests of SDK v2, once with each version of
// the signature.
func TestSDKv2Suite(t *testing.T) {
	t.Parallel()
	s := suite{module: "sdkv2", sdk: "github.com/aliyun/alibabacloud-oss-go-sdk-v2", tags: "integration"}
	binary := s.build(t)
	files := integrationTests(t, filepath.Join(s.source(t), "oss"))
	ex := readExclusions(t, "sdkv2/exclusions.txt")
	var all []string
	for _, tests := range files {
		all = append(all, tests...)
	}
	_, excluded := ex.split(t, all)

	var jobs []*job
	for _, version := range []string{"v1", "v4"} {
		for file, tests := range files {
			wanted, _ := ex.divide(tests)
			if len(wanted) == 0 {
				continue
			}
			jobs = append(jobs, &job{
				name: version + "/" + file, tests: wanted, dir: t.TempDir(), addr: emulate(t), limit: 10 * time.Minute,
				env:  []string{"OSS_TEST_SIGNATURE_VERSION=" + version},
				args: []string{"-test.v", "-test.timeout=0", "-test.run", only(wanted)},
			})
		}
	}
	runAll(t, binary, jobs)
	for _, j := range jobs {
		t.Run(j.name, func(t *testing.T) { j.wantPassed(t, goOutcomes(j.output)) })
	}
	if !full() {
		return
	}
	jobs = nil
	for _, test := range excluded {
		jobs = append(jobs, &job{
			name: test, tests: []string{test}, dir: t.TempDir(), addr: emulate(t), limit: time.Minute,
			args: []string{"-test.v", "-test.run", only([]string{test})},
		})
	}
	runAll(t, binary, jobs)
	for _, j := range jobs {
		t.Run("Excluded"+j.name, func(t *testing.T) { ex.wantNotPassed(t, j, goOutcomes(j.output)) })
	}
}

// integrationTests returns the tests of each file that talks to the service.
func integrationTests(t *testing.T, dir string) map[string][]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "client_integration_*_test.go"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no integration tests in %s: %v", dir, err)
	}
	files := make(map[string][]string)
	for _, path := range paths {
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatalf("parse: %v", err)
		}
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "client_integration_"), "_test.go")
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
				files[name] = append(files[name], f.Name.Name)
			}
		}
	}
	return files
}

// goVerdict is how the testing package says that a test has ended.
var goVerdict = regexp.MustCompile(`(?m)^--- (PASS|FAIL|SKIP): (\w+) `)

// goOutcomes reads the output of a verbose test binary. The log of a test stands
// between its start and its verdict, and behind the latter.
func goOutcomes(output string) map[string]outcome {
	got := make(map[string]outcome)
	for _, m := range goVerdict.FindAllStringSubmatchIndex(output, -1) {
		name := output[m[4]:m[5]]
		begin := max(0, strings.Index(output, "=== RUN   "+name+"\n"))
		end := len(output)
		if i := strings.Index(output[m[1]:], "\n=== RUN"); i >= 0 {
			end = m[1] + i
		}
		got[name] = outcome{verdict: output[m[2]:m[3]], log: output[begin:end]}
	}
	return got
}
