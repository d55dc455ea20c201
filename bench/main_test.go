package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestParseSize(t *testing.T) {
	for s, want := range map[string]int64{"20GiB": 20 << 30, "600MB": 600e6, "1": 1} {
		if got, err := parseSize(s); err != nil || got != want {
			t.Errorf("%q is %d, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "0", "many", "-1", "99999999999GiB"} {
		if got, err := parseSize(s); err == nil {
			t.Errorf("%q is %d", s, got)
		}
	}
}

func TestChooseGoals(t *testing.T) {
	all, err := chooseGoals(nil)
	if err != nil || len(all) < 10 {
		t.Fatalf("%d goals, %v", len(all), err)
	}
	some, err := chooseGoals([]string{"memory", "seq-warm"})
	if err != nil || len(some) != 2 || some[0].Name != "memory" {
		t.Errorf("%v, %v", some, err)
	}
	if _, err := chooseGoals([]string{"memory", "speed"}); err == nil {
		t.Error("an unknown goal was accepted")
	}
}

func TestFindProgramsNeedsBoth(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "pailfs"), nil, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := findPrograms(dir); err == nil {
		t.Error("half of the programs were accepted")
	}
	if err := os.WriteFile(filepath.Join(dir, "ossemu"), nil, 0o700); err != nil {
		t.Fatal(err)
	}
	if got, err := findPrograms(dir); err != nil || got != dir {
		t.Errorf("%q, %v", got, err)
	}
}

func TestTheCommandOfAReportNamesNoFiles(t *testing.T) {
	got := whatIsMeasured([]string{"targets", "list", "--json", "/home/me/x.json", "--runs", "3", "--work=/scratch", "tree"})
	if want := []string{"targets", "list", "--runs", "3", "tree"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
