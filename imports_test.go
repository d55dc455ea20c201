package pailfs_test

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// importRule is a rule of depguard: what the packages that its files are in may import.
type importRule struct {
	Files, Allow []string
	Deny         []struct{ Pkg string }
}

// beside are the rules that speak of all packages, and let none be without one of its own.
var beside = []string{"datapath", "production"}

func importRules(t *testing.T) map[string]importRule {
	t.Helper()
	var config struct {
		Linters struct {
			Settings struct {
				Depguard struct{ Rules map[string]importRule }
			}
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, ".golangci.yml")), &config); err != nil {
		t.Fatal(err)
	}
	return config.Linters.Settings.Depguard.Rules
}

// covers reports whether the rule is one for the file, as depguard understands its patterns: a star
// stops at a slash, two do not.
func (r importRule) covers(file string) bool {
	match := func(pattern string) bool {
		p := regexp.QuoteMeta(strings.TrimPrefix(pattern, "${config-path}/"))
		p = strings.ReplaceAll(p, `\*\*`, `.*`)
		p = strings.ReplaceAll(p, `\*`, `[^/]*`)
		return regexp.MustCompile("^" + p + "$").MatchString(file)
	}
	covered := false
	for _, pattern := range r.Files {
		if out, negative := strings.CutPrefix(pattern, "!"); !negative {
			covered = covered || match(pattern)
		} else if match(out) {
			return false
		}
	}
	return covered
}

// TestEveryPackageHasARuleOfImports: depguard says nothing of a package that no rule is for.
func TestEveryPackageHasARuleOfImports(t *testing.T) {
	rules := importRules(t)
	packages := map[string]bool{} // whether there is a rule
	for _, file := range open(t).files {
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") || strings.Contains(file, "/testdata/") {
			continue
		}
		covered := false
		for name, rule := range rules {
			covered = covered || !slices.Contains(beside, name) && rule.covers(file)
		}
		packages[path.Dir(file)] = packages[path.Dir(file)] || covered
	}
	if len(packages) < 50 {
		t.Errorf("%d packages are found", len(packages))
	}
	for dir, covered := range packages {
		if !covered {
			t.Errorf("no depguard rule of .golangci.yml is for %s: say what it may import", dir)
		}
	}
}

// TestNoImportRuleHidesAnother: of a list, depguard looks at the last entry that is not behind the
// import in the alphabet, and at no other.
func TestNoImportRuleHidesAnother(t *testing.T) {
	for name, rule := range importRules(t) {
		var denied []string
		for _, d := range rule.Deny {
			denied = append(denied, d.Pkg)
		}
		for _, list := range [][]string{rule.Allow, denied} {
			for _, entry := range list {
				for _, other := range list {
					if entry != other && strings.HasPrefix(other, entry) {
						t.Errorf("rule %s: %q hides what is behind %q: end it with $, or split the rule", name, other, entry)
					}
				}
			}
		}
	}
}
