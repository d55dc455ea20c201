package manifests

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/programtest"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/reach"
	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/manifest/build"
	"github.com/pailfs/pailfs/oss/ossemu"
)

// manifests is a store with a user who makes manifests of it.
type manifests struct {
	*programtest.Store
	env []string
}

func startManifests(t *testing.T) *manifests {
	t.Helper()
	return &manifests{Store: programtest.StartStore(t), env: programtest.Environ("XDG_CACHE_HOME=" + t.TempDir())}
}

// fill stores objects past the protocol.
func (m *manifests) fill(t *testing.T, keys ...string) {
	t.Helper()
	for _, key := range keys {
		if _, err := m.Server.Put(programtest.TestBucket, key, strings.NewReader("content of "+key)); err != nil {
			t.Fatal(err)
		}
	}
}

// run runs a manifest command.
func (m *manifests) run(t *testing.T, args ...string) programtest.Outcome {
	t.Helper()
	return programtest.Run(t, m.env, append(append([]string{"manifest"}, args...), "--endpoint", m.Endpoint)...)
}

// must runs a manifest command that must end with a code, and decodes what it
// prints as JSON.
func must[T any](t *testing.T, m *manifests, code int, args ...string) T {
	t.Helper()
	o := m.run(t, append(args, "--json")...)
	if o.Code != code {
		t.Fatalf("manifest %q ended with %d, want %d: %s%s", args, o.Code, code, o.Stdout, o.Stderr)
	}
	var v T
	if err := json.Unmarshal([]byte(o.Stdout), &v); err != nil {
		t.Fatalf("manifest %q printed no JSON (%v): %s", args, err, o.Stdout)
	}
	return v
}

// names are the paths that ls prints.
func (m *manifests) names(t *testing.T, args ...string) []string {
	t.Helper()
	o := m.run(t, append([]string{"ls", "-R"}, args...)...)
	if o.Code != 0 {
		t.Fatalf("ls %q: %s", args, o.Stderr)
	}
	return strings.Split(strings.TrimSuffix(o.Stdout, "\n"), "\n")
}

const testURL = "oss://" + programtest.TestBucket

// A user's day: build, look, change, update, compare, verify.
func TestManifestFromBuildToDiff(t *testing.T) {
	m := startManifests(t)
	m.fill(t, "p/a", "p/d/b", "p/d/c", "q/outside")
	first := must[made](t, m, 0, "build", testURL+"/p")
	if !first.Published || first.Generation != 1 || first.Objects != 3 || first.Directories != 2 || first.Bytes == 0 {
		t.Errorf("built %+v", first)
	}
	if d := cmp.Diff([]string{"a", "d", "d/b", "d/c"}, m.names(t, testURL+"/p")); d != "" {
		t.Errorf("ls (-want +got):\n%s", d)
	}
	if o := m.run(t, "ls", testURL+"/p", "d/b", "-l"); o.Code != 0 || !strings.Contains(o.Stdout, "16") || !strings.Contains(o.Stdout, "d/b") {
		t.Errorf("ls of a file: %+v", o)
	}
	if o := m.run(t, "ls", testURL+"/p", "nothing"); o.Code != 1 || !strings.Contains(o.Stderr, `has no "nothing"`) {
		t.Errorf("ls of nothing: %+v", o)
	}
	shown := must[shownManifest](t, m, 0, "show", testURL+"/p")
	if shown.Generation != 1 || shown.Root != "p/" || shown.Objects != 3 || shown.From != "listing" || shown.Properties["bucket"] != programtest.TestBucket {
		t.Errorf("show %+v", shown)
	}
	if c := must[comparison](t, m, 0, "verify", testURL+"/p", "--full"); c.Same != 3 || c.Any() {
		t.Errorf("verify %+v", c)
	}
	if again := must[made](t, m, 0, "update", testURL+"/p"); again.Published || again.Changes == nil || again.Changes.Any() {
		t.Errorf("an update of what has not changed: %+v", again)
	}

	m.fill(t, "p/d/new", "p/e/new")
	if err := m.Delete(programtest.TestBucket, "p/d/b"); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--full"}, {"--samples", "100"}} {
		c := must[comparison](t, m, ExitDiffers, append([]string{"verify", testURL + "/p"}, args...)...)
		if c.Counts != (build.Counts{Added: 2, Removed: 1, Same: 2}) || len(c.Differences) != 3 {
			t.Errorf("verify %q: %+v", args, c)
		}
	}
	second := must[made](t, m, 0, "update", testURL+"/p", "d/")
	if d := cmp.Diff(&build.Counts{Added: 1, Removed: 1, Same: 2}, second.Changes); d != "" || second.Generation != 2 {
		t.Errorf("update %+v (-want +got):\n%s", second, d)
	}
	if d := cmp.Diff([]string{"a", "d", "d/c", "d/new"}, m.names(t, testURL+"/p")); d != "" {
		t.Errorf("ls after the update (-want +got):\n%s", d)
	}
	o := m.run(t, "diff", testURL+"/p")
	if o.Code != ExitDiffers || !strings.Contains(o.Stdout, `- "p/d/b"`) || !strings.Contains(o.Stdout, `+ "p/d/new"`) {
		t.Errorf("diff: %+v", o)
	}
	file := filepath.Join(t.TempDir(), "file")
	third := must[made](t, m, 0, "build", testURL+"/p", "--output", file, "--no-publish")
	if third.Published || third.Objects != 4 || third.File != file {
		t.Errorf("built to a file: %+v", third)
	}
	if c := must[comparison](t, m, ExitDiffers, "diff", testURL+"/p", file, "--generation", "1"); c.Counts != (build.Counts{Added: 2, Removed: 1, Same: 2}) {
		t.Errorf("diff with a file: %+v", c)
	}
	if c := must[comparison](t, m, 0, "diff", file, file); c.Any() || c.Same != 4 {
		t.Errorf("diff of a file with itself: %+v", c)
	}
	if c := must[comparison](t, m, ExitDiffers, "diff", testURL+"/p", "--generation", "1,2"); c.Counts != (build.Counts{Added: 1, Removed: 1, Same: 2}) {
		t.Errorf("diff of generations: %+v", c)
	}
	all := must[[]shownGeneration](t, m, 0, "show", testURL+"/p", "--all")
	if len(all) != 2 || all[0].Newest || !all[1].Newest || all[1].Number != 2 {
		t.Errorf("show --all: %+v", all)
	}
	fourth := must[made](t, m, 0, "update", testURL+"/p", "--over", file, "--attrs", "yes")
	if fourth.Published || fourth.Changes.Any() {
		t.Errorf("update over a file: %+v", fourth)
	}
}

func TestManifestFromAListOfKeys(t *testing.T) {
	m := startManifests(t)
	m.fill(t, "a", "b", "c")
	list := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(list, []byte("a\noss://"+programtest.TestBucket+"/c\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := must[made](t, m, 0, "build", testURL, "--from-keys", list, "--attrs"); out.Objects != 2 || out.From != "keys "+list {
		t.Errorf("%+v", out)
	}
	if err := os.WriteFile(list, []byte("a\nmissing\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if o := m.run(t, "build", testURL, "--from-keys", list, "--restart"); o.Code != 1 || !strings.Contains(o.Stderr, `"missing"`) {
		t.Errorf("a missing key: %+v", o)
	}
}

// killWhen starts the program and kills it when ready says so.
func (m *manifests) killWhen(t *testing.T, ready func() bool, args ...string) {
	t.Helper()
	cmd := exec.Command(programtest.Binary, append(append([]string{"manifest"}, args...), "--endpoint", m.Endpoint)...)
	cmd.Env = m.env
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	deadline := time.Now().Add(programtest.Patience)
	for !ready() {
		select {
		case err := <-ended:
			t.Fatalf("it ended before it could be killed: %v", err)
		default:
		}
		if time.Now().After(deadline) {
			_ = cmd.Process.Kill() // the test has failed already
			t.Fatal("it did not come so far")
		}
		time.Sleep(time.Millisecond)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Fatal("it ended well before it could be killed")
	}
}

// setFaults replaces the store's faults.
func (m *manifests) setFaults(t *testing.T, faults ...ossemu.Fault) {
	t.Helper()
	if err := m.SetFaults(faults); err != nil {
		t.Fatal(err)
	}
}

// It is killed with SIGKILL again and again while it lists: it goes on, and ends
// with every object once.
func TestKilledBuildGoesOn(t *testing.T) {
	m := startManifests(t)
	var want []string
	for i := range 6000 {
		want = append(want, fmt.Sprintf("%06d", i))
	}
	m.fill(t, want...)
	args := []string{"build", testURL, "--parallel", "2"}
	// From the fourth listing on every one hangs: it is killed with pages done.
	for range 2 {
		m.setFaults(t, ossemu.Fault{Operation: "ListObjectsV2", Kind: ossemu.FaultSlowFirstByte, Delay: time.Hour, Skip: 4})
		before := m.Stats().Faults[ossemu.FaultSlowFirstByte]
		m.killWhen(t, func() bool { return m.Stats().Faults[ossemu.FaultSlowFirstByte] > before }, args...)
	}
	m.setFaults(t)
	out := must[made](t, m, 0, args...)
	if !out.Resumed || out.Replayed == 0 || out.Objects != 6000 || out.Duplicates != 0 || out.Generation != 1 {
		t.Errorf("%+v", out)
	}
	if got := m.names(t, testURL); !slices.Equal(got, want) {
		t.Errorf("the manifest has %d names", len(got))
	}
}

// It is killed while it uploads the generation, and while it writes the pointer:
// readers see what was published before, and then the new one.
func TestKilledPublicationGoesOn(t *testing.T) {
	m := startManifests(t)
	m.fill(t, "old")
	must[made](t, m, 0, "build", testURL)
	m.fill(t, "new")
	for _, step := range []string{"00000000000000000002", "latest"} {
		m.setFaults(t, ossemu.Fault{Operation: "PutObject", KeyContains: step, Kind: ossemu.FaultSlowFirstByte, Delay: time.Hour})
		before := m.Stats().Faults[ossemu.FaultSlowFirstByte]
		m.killWhen(t, func() bool { return m.Stats().Faults[ossemu.FaultSlowFirstByte] > before }, "build", testURL)
		m.setFaults(t)
		got := must[shownManifest](t, m, 0, "show", testURL)
		if want := int64(min(got.Generation, 2)); got.Objects != want {
			t.Errorf("killed at %s: %+v", step, got)
		}
		// What readers find is whole at any time.
		if c := must[comparison](t, m, map[bool]int{true: 0, false: ExitDiffers}[got.Objects == 2], "verify", testURL, "--full"); c.Same != got.Objects {
			t.Errorf("killed at %s: %+v", step, c)
		}
	}
	out := must[made](t, m, 0, "build", testURL)
	if !out.Resumed || !out.Published || out.Objects != 2 {
		t.Errorf("%+v", out)
	}
	if got := m.names(t, testURL); !slices.Equal(got, []string{"new", "old"}) {
		t.Errorf("the manifest has %q", got)
	}
	if got := must[shownManifest](t, m, 0, "show", testURL); got.Generation != out.Generation {
		t.Errorf("latest is %d, and %d was published", got.Generation, out.Generation)
	}
}

func TestManifestCommandsRefuseWhatCannotBeMeant(t *testing.T) {
	m := startManifests(t)
	m.fill(t, "a")
	torn := filepath.Join(t.TempDir(), "torn")
	if err := os.WriteFile(torn, []byte("no manifest"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"build", "bucket"}, 2, "oss://"},
		{[]string{"build", testURL, "--no-publish"}, 2, "--output"},
		{[]string{"build", testURL, "--keep", "0"}, 2, "--keep 0"},
		{[]string{"build", testURL, "--parallel", "0"}, 2, "--parallel 0"},
		{[]string{"build", testURL, "--null"}, 2, "--from-keys"},
		{[]string{"build", testURL, "--sort-memory", "1KiB"}, 2, "4MiB"},
		{[]string{"build", testURL, "--from-inventory", "oss://b"}, 2, "oss://bucket/key"},
		{[]string{"build", testURL, "--from-inventory", testURL + "/none/manifest.json"}, 1, "no such object"},
		{[]string{"build", testURL, "--from-keys", "/nonexistent/list"}, 2, "/nonexistent/list"},
		{[]string{"build", testURL, "--output", "/nonexistent/dir/file"}, 2, "not a directory"},
		{[]string{"build", "oss://no-such-bucket"}, 1, "no-such-bucket"},
		{[]string{"update", testURL}, 1, "publish one with pailfs manifest build"},
		{[]string{"show", testURL}, 1, "publish one with pailfs manifest build"},
		{[]string{"show", torn}, 1, torn},
		{[]string{"show", torn, "--all"}, 2, "published"},
		{[]string{"show", "/nonexistent/file"}, 1, "/nonexistent/file"},
		{[]string{"diff", torn}, 2, "name another"},
		{[]string{"diff", torn, torn, "--generation", "1"}, 2, "--generation"},
		{[]string{"verify", testURL, "--samples", "0"}, 2, "--samples 0"},
		{[]string{"ls", testURL, "--generation", "7"}, 1, "generation 7"},
	} {
		o := m.run(t, test.args...)
		if o.Code != test.code || !strings.Contains(o.Stderr, test.want) || strings.Count(o.Stderr, "\n") != 1 || strings.Contains(o.Stderr, "panic") {
			t.Errorf("manifest %q: exit code %d, want %d, and something of %q: %s", test.args, o.Code, test.code, test.want, o.Stderr)
		}
	}
	if o := programtest.Run(t, m.env, "manifest", "show", testURL); o.Code != 2 || !strings.Contains(o.Stderr, "--endpoint") {
		t.Errorf("without an endpoint: %+v", o)
	}
}

func TestManifestCommandsExplainThemselves(t *testing.T) {
	for _, command := range []string{"build", "update", "show", "ls", "verify", "diff"} {
		o := programtest.Run(t, programtest.Environ(), "manifest", command, "--help")
		if o.Code != 0 || o.Stderr != "" {
			t.Errorf("manifest %s --help: exit code %d, %s", command, o.Code, o.Stderr)
		}
		for _, want := range []string{"Usage: pailfs manifest " + command, "Exit codes:", "Examples:", "\n    pailfs manifest " + command} {
			if !strings.Contains(o.Stdout, want) {
				t.Errorf("manifest %s --help does not say %q", command, want)
			}
		}
	}
}

// The commands that do not mount take every setting of the store that mount takes.
func TestStoreFlagsAreThoseOfMount(t *testing.T) {
	for _, s := range config.Settings() {
		if s.Group == "store" && !slices.Contains(reach.StoreFlagNames(), s.Name) {
			t.Errorf("--%s of mount is not a flag of manifest", s.Name)
		}
	}
	o := programtest.Run(t, programtest.Environ(), "manifest", "show", "--help")
	for _, name := range reach.StoreFlagNames() {
		if !strings.Contains(o.Stdout, "--"+name+"=") && !strings.Contains(o.Stdout, "--"+name+" ") {
			t.Errorf("manifest show --help does not name --%s", name)
		}
	}
}

// A published file is what the file of the build is.
func TestPublishedManifestOpensAsAFile(t *testing.T) {
	m := startManifests(t)
	m.fill(t, "a", "b/c")
	file := filepath.Join(t.TempDir(), "file")
	out := must[made](t, m, 0, "build", testURL, "--output", file)
	var published strings.Builder
	if err := m.Get(programtest.TestBucket, out.Key, &published); err != nil {
		t.Fatal(err)
	}
	local, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(local) != published.String() {
		t.Error("the published file is another one")
	}
	s, err := manifest.OpenSnapshot(file, manifest.SnapshotConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if s.Info().Generation != out.Generation || s.Info().Objects != 2 {
		t.Errorf("it says %+v", s.Info())
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
