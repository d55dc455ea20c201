// Package grafana holds dashboards and rules; only tests are here.
package grafana

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// The dashboards, and the file of the rules.
var dashboards = []string{"mount.json", "node.json", "fleet.json"}

const rulesFile = "rules.yaml"

// query is what a panel asks.
type query struct {
	dashboard, panel, expr string
}

// queriesOf returns all that a dashboard asks, and fails where a panel asks nothing, or does not
// say what it shows.
func queriesOf(t *testing.T, file string) []query {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		UID, Title string
		Panels     []struct {
			ID                       int
			Title, Type, Description string
			Targets                  []struct{ Expr, LegendFormat string }
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	if d.UID == "" || d.Title == "" {
		t.Errorf("%s: want a uid and a title", file)
	}
	var all []query
	seen := map[int]bool{}
	for _, p := range d.Panels {
		if seen[p.ID] {
			t.Errorf("%s: two panels have the id %d", file, p.ID)
		}
		seen[p.ID] = true
		if p.Type == "row" {
			continue
		}
		if len(p.Targets) == 0 || p.Description == "" {
			t.Errorf("%s, panel %q: asks %d queries and describes itself as %q", file, p.Title, len(p.Targets), p.Description)
		}
		for _, target := range p.Targets {
			all = append(all, query{file, p.Title, target.Expr})
		}
	}
	return all
}

// rule is one of rules.yaml.
type rule struct {
	Record, Alert, Expr, For string
	Labels, Annotations      map[string]string
}

func readRules(t *testing.T) []rule {
	t.Helper()
	text, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Name  string
			Rules []rule
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	var all []rule
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatalf("%s has no rule", rulesFile)
	}
	return all
}

var (
	ours   = regexp.MustCompile(`\bpailfs[:_][a-z0-9_:]+`)
	listed = regexp.MustCompile("(?m)^\\| `(pailfs_[a-z0-9_]+)` \\| (\\w+) \\|")
	suffix = regexp.MustCompile(`_(bucket|count|sum)$`)
)

// TestQueriesNameMetricsThatThereAre: the two lists of metrics are compared with what programs
// export where they stand.
func TestQueriesNameMetricsThatThereAre(t *testing.T) {
	known := map[string]string{} // by name, the kind
	for _, file := range []string{"../../cmd/pailfs/METRICS.md", "../node/METRICS.md"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range listed.FindAllStringSubmatch(string(text), -1) {
			known[m[1]] = m[2]
		}
	}
	rules := readRules(t)
	for _, r := range rules {
		if r.Record != "" {
			known[r.Record] = "record"
		}
	}
	check := func(where, expr string) {
		names := ours.FindAllString(expr, -1)
		if len(names) == 0 {
			t.Errorf("%s asks for nothing of pailfs: %s", where, expr)
		}
		for _, name := range names {
			base := suffix.ReplaceAllString(name, "")
			if known[name] == "" && known[base] != "histogram" {
				t.Errorf("%s asks for %s, which nobody exports", where, name)
			}
			if strings.HasSuffix(name, "_total") && !strings.Contains(expr, "rate(") && !strings.Contains(expr, "increase(") && !strings.Contains(expr, "sum("+name) {
				t.Errorf("%s shows the counter %s itself, which begins anew with each daemon", where, name)
			}
		}
	}
	asked := 0
	for _, file := range dashboards {
		for _, q := range queriesOf(t, file) {
			check(q.dashboard+", panel "+q.panel, q.expr)
			asked++
		}
	}
	for _, r := range rules {
		check(rulesFile+", "+r.Record+r.Alert, r.Expr)
	}
	t.Logf("%d queries, %d rules", asked, len(rules))
}

// TestEveryAlertHasItsPage: a heading in RUNBOOK.md, to which the alert points, and no heading
// without an alert.
func TestEveryAlertHasItsPage(t *testing.T) {
	text, err := os.ReadFile("RUNBOOK.md")
	if err != nil {
		t.Fatal(err)
	}
	var headings []string
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "## "); ok {
			headings = append(headings, name)
		}
	}
	for _, r := range readRules(t) {
		if r.Alert == "" {
			continue
		}
		at := slices.Index(headings, r.Alert)
		if at < 0 {
			t.Errorf("%s has no heading in RUNBOOK.md", r.Alert)
			continue
		}
		headings = slices.Delete(headings, at, at+1)
		if url := r.Annotations["runbook_url"]; !strings.HasSuffix(url, "deploy/grafana/RUNBOOK.md#"+strings.ToLower(r.Alert)) {
			t.Errorf("%s points to %q", r.Alert, url)
		}
		if !slices.Contains([]string{"critical", "warning"}, r.Labels["severity"]) || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s: want a severity, critical or warning, a summary and a description", r.Alert)
		}
	}
	if len(headings) > 0 {
		t.Errorf("RUNBOOK.md has pages of alerts that are not: %v", headings)
	}
}

// TestDashboardsAreListed: README.md names every file that is there to be imported.
func TestDashboardsAreListed(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*.json")
	if err != nil || len(files) != len(dashboards) {
		t.Fatalf("dashboards are %v (%v), want %v", files, err, dashboards)
	}
	for _, file := range append(files, rulesFile, "RUNBOOK.md") {
		if !strings.Contains(string(text), "("+file+")") {
			t.Errorf("README.md does not name %s", file)
		}
	}
}
