package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPlanGivesEachKindItsShare(t *testing.T) {
	parts, err := plan("", "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]uint64{}
	for _, p := range parts {
		got[p.kind] = p.to - p.from + 1
	}
	if got["kills"] != 1000 || got["power"] != 200 || got["soak"] != 1 || len(got) != 7 {
		t.Error(got)
	}
	parts, err = plan("power, kills", "101-200", 1000)
	if err != nil || len(parts) != 2 || parts[0] != (part{"kills", 101, 200}) || parts[1] != (part{"power", 101, 200}) {
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
	tests := filepath.Join(dir, "tests")
	script := `#!/bin/sh
echo "{\"what\":\"seed $PAILFS_TORTURE_SEED\",\"kills\":1}" >"$PAILFS_TORTURE_REPORT"
[ "$PAILFS_TORTURE_SEED" != 2 ] || { echo "    x_test.go:1: a byte is wrong"; exit 1; }
`
	if err := os.WriteFile(tests, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	results, page := filepath.Join(dir, "r.jsonl"), filepath.Join(dir, "PAGE.md")
	var out bytes.Buffer
	err := run(t.Context(), []string{"-tests", tests, "-program", "/bin/true", "-results", results, "-kinds", "kills", "-seeds", "1-3"}, &out, &out)
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
