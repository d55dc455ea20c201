package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pailfs/pailfs/cmd/pailfs/systemtest/torture"
)

// root is the root of the repository, in which rounds are run.
const root = "../../../../.."

func kindOf(name string) torture.Kind {
	all := torture.Kinds()
	return all[slices.IndexFunc(all, func(k torture.Kind) bool { return k.Name == name })]
}

func TestPlanGivesEachKindItsShare(t *testing.T) {
	parts, err := plan("", "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]uint64{}
	for _, p := range parts {
		got[p.kind.Name] = p.to - p.from + 1
	}
	if got["kills"] != 1000 || got["power"] != 200 || got["soak"] != 1 || got["content"] != 10 || len(got) != 12 {
		t.Error(got)
	}
	parts, err = plan("power, kills", "101-200", 1000)
	if err != nil || len(parts) != 2 || parts[0] != (part{kindOf("kills"), 101, 200}) || parts[1] != (part{kindOf("power"), 101, 200}) {
		t.Errorf("%v, %v", parts, err)
	}
	for _, bad := range [][2]string{{"kill", ""}, {"", "7"}, {"", "9-3"}, {"", "1-2x"}} {
		if _, err := plan(bad[0], bad[1], 1); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// Each round is a process, which passes or fails, and whose log is kept if it fails.
func TestRoundsAreRunAndSummarized(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(root)
	tests := filepath.Join(dir, "systemtest.test")
	script := `#!/bin/sh
echo "{\"what\":\"seed $PAILFS_TORTURE_SEED\",\"kills\":1}" >"$PAILFS_TORTURE_REPORT"
[ "$PAILFS_TORTURE_SEED" != 2 ] || { echo "    x_test.go:1: a byte is wrong"; exit 1; }
`
	if err := os.WriteFile(tests, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	results, page := filepath.Join(dir, "r.jsonl"), filepath.Join(dir, "PAGE.md")
	var out bytes.Buffer
	err := run(t.Context(), []string{"-tests", dir, "-program", "/bin/true", "-results", results, "-kinds", "kills", "-seeds", "1-3"}, &out, &out)
	if err == nil || !strings.Contains(err.Error(), "1 of 3 rounds failed") {
		t.Errorf("%v: %s", err, &out)
	}
	if !strings.Contains(out.String(), "[make torture KINDS=kills SEEDS=2-2]") || strings.Count(out.String(), "\n") != 3 {
		t.Errorf("it printed %s", &out)
	}
	if log, err := os.ReadFile(filepath.Join(dir, "r.logs", "kills-2.log")); err != nil || !strings.Contains(string(log), "a byte is wrong") {
		t.Errorf("the log is %q, %v", log, err)
	}
	if err := run(t.Context(), []string{"-summary", page, results}, &out, &out); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(page); err != nil || !strings.Contains(string(text), "| 3 | 3 | 0 | 0 | 1 |") {
		t.Errorf("the summary is %s, %v", text, err)
	}
}

// A test of another package is a round, at its full size or a short one, by its seed.
func TestATestOfAnotherPackageIsARound(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(root)
	script := `#!/bin/sh
[ "$PAILFS_ABUSE_SEED" != 2 ] || { echo "    abuse_test.go:1: it had too much"; exit 1; }
echo "    abuse_test.go:7: in $(basename "$PWD") with $PAILFS_ABUSE_CALLS by $4"
[ "$1" = '-test.run=^TestNoCallOfManyUsersTakesMoreThanTheBound$' ]
`
	if err := os.WriteFile(filepath.Join(dir, "mounting.test"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	for size, want := range map[string]string{
		"-short=false": "in mounting with 300000 by -test.short=false  [",
		"-short":       "in mounting with 500 by -test.short=true  [",
	} {
		var out bytes.Buffer
		err := run(t.Context(), []string{"-tests", dir, "-program", "/bin/true", "-results", filepath.Join(dir, "r.jsonl"), "-kinds", "abuse", "-seeds", "1-2", size}, &out, &out)
		if err == nil || !strings.Contains(err.Error(), "1 of 2 rounds failed") || !strings.Contains(out.String(), want) ||
			!strings.Contains(out.String(), "[make torture KINDS=abuse SEEDS=2-2]") {
			t.Errorf("%s: %v: %s", size, err, &out)
		}
	}
}

// The tests that are rounds are there, and go by the variables that they are told.
func TestRoundsOfOtherPackagesAreThere(t *testing.T) {
	for _, kind := range torture.Kinds() {
		if kind.Of == nil {
			continue
		}
		files, err := filepath.Glob(filepath.Join(root, kind.Of.Package, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		var source strings.Builder
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			source.Write(text)
		}
		wants := []string{`(?m)^func ` + kind.Of.Name + `\(t `, `"` + kind.Of.Seed + `"`}
		for _, variable := range slices.Concat(kind.Of.Full, kind.Of.Short) {
			name, _, _ := strings.Cut(variable, "=")
			wants = append(wants, `"`+name+`"`)
		}
		for _, want := range wants {
			if !regexp.MustCompile(want).MatchString(source.String()) {
				t.Errorf("%s: nothing in %s matches %s", kind.Name, kind.Of.Package, want)
			}
		}
	}
}
