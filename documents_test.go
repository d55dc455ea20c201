// Package pailfs_test holds the documents, the pictures and the linters' rules of the repository
// against its code.
package pailfs_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// repository is what the tests look at: every file that people wrote, by its path.
type repository struct {
	files []string
	paths map[string]bool // files and directories
	tests map[string]bool // names of test functions
	makes map[string]bool // targets of the Makefile
}

// skipped are directories of what programs wrote.
var skipped = []string{".git", ".ci/tools", ".demo", ".torture", "bin", "dist"}

func open(t *testing.T) *repository {
	t.Helper()
	r := &repository{paths: map[string]bool{}, tests: map[string]bool{}, makes: map[string]bool{}}
	err := filepath.WalkDir(".", func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() && (slices.Contains(skipped, name) || strings.HasSuffix(e.Name(), "_cache") || e.Name() == "__pycache__") {
			return fs.SkipDir
		}
		r.paths[name] = true
		if !e.IsDir() {
			r.files = append(r.files, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range r.files {
		if strings.HasSuffix(name, "_test.go") {
			collect(r.tests, testFunction, read(t, name))
		}
	}
	collect(r.makes, makeRule, read(t, "Makefile"))
	return r
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// collect adds the first group of every match in text.
func collect(set map[string]bool, re *regexp.Regexp, text string) {
	for _, m := range re.FindAllStringSubmatch(text, -1) {
		set[m[1]] = true
	}
}

var (
	testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)[A-Za-z0-9]\w*)\(`)
	makeRule     = regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):`)

	// What a document names.
	linked      = regexp.MustCompile(`\]\(([^)\s]+)\)|(?m)^\[[^\]]+\]: (\S+)$`)
	sourceFile  = regexp.MustCompile(`(?:^|[^\w./<>*{$%[-])((?:[\w.-]+/)*[\w.-]*[A-Za-z]\w*\.(?:go|md)|(?:[\w.-]+/)+\w+\.py)\b`)
	placed      = regexp.MustCompile(`(?:^|[^\w./:<>*{$-])((?:bench|cache|cmd|deploy|fs|manifest|oss|prefetch|\.ci)/[\w./-]*\w)(?:[^\w*<$/{…]|$)`)
	ofPackage   = regexp.MustCompile(`\b(?:and|by|from|in|of|on|see) package ([a-z]\w*)`)
	namedTest   = regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z]\\w*)`")
	makeCommand = regexp.MustCompile("(?m)(?:`|^\\s*|&& )make ([a-z][a-z0-9-]*)")
)

// text is a document, or the comment of a package.
type text struct {
	name, content string
}

// texts returns what is held against the repository. Results were true of their day, and so is
// what the change log says of versions that are out.
func (r *repository) texts(t *testing.T) (all []text) {
	t.Helper()
	for _, name := range r.files {
		switch {
		case strings.HasPrefix(name, "bench/results/"), strings.Contains(name, "/testdata/"):
		case name == "CHANGELOG.md":
			unreleased, _, _ := strings.Cut(read(t, name), "\n## 0.")
			all = append(all, text{name, unreleased})
		case path.Base(name) == "TORTURE.md":
			// What comes before is rendered from logs.
			_, written, _ := strings.Cut(read(t, name), "<!-- What follows is written by hand. -->")
			all = append(all, text{name, written})
		case strings.HasSuffix(name, ".md"):
			all = append(all, text{name, read(t, name)})
		case path.Base(name) == "doc.go":
			all = append(all, text{name, read(t, name)})
		}
	}
	return all
}

// has reports whether name, as a text in dir writes it, is there: from dir, from the root, or, for
// a name without a slash, somewhere below dir.
func (r *repository) has(dir, name string) bool {
	if r.paths[path.Join(dir, name)] || r.paths[path.Clean(name)] {
		return true
	}
	return !strings.Contains(name, "/") && slices.ContainsFunc(r.files, func(file string) bool {
		return (dir == "." || strings.HasPrefix(file, dir+"/")) && path.Base(file) == name
	})
}

// hasPackage reports whether a package is called name, after its directory.
func (r *repository) hasPackage(name string) bool {
	return slices.ContainsFunc(r.files, func(file string) bool {
		return strings.HasSuffix(file, ".go") && path.Base(path.Dir(file)) == name
	})
}

// TestWhatDocumentsNameIsThere looks for the files, packages, tests and make targets that
// documents and package comments name.
func TestWhatDocumentsNameIsThere(t *testing.T) {
	r := open(t)
	texts := r.texts(t)
	if len(texts) < 60 {
		t.Fatalf("%d texts are found", len(texts))
	}
	for _, text := range texts {
		for _, gone := range r.missing(text) {
			t.Errorf("%s names %s, which is not there", text.name, gone)
		}
	}
}

// TestWhatCommentsNameIsThere looks for the source files and documents that comments of Go files
// name, as documents do: from the root, from beside them, or somewhere below.
func TestWhatCommentsNameIsThere(t *testing.T) {
	r := open(t)
	named := 0
	for _, name := range r.files {
		if !strings.HasSuffix(name, ".go") || strings.Contains(name, "/testdata/") {
			continue
		}
		for _, file := range filesInComments(t, name, read(t, name)) {
			named++
			if !r.has(path.Dir(name), file) {
				t.Errorf("a comment of %s names %s, which is not there", name, file)
			}
		}
	}
	if named < 50 {
		t.Errorf("comments name %d files", named)
	}
}

// TestWhatACommentNamesIsFound: the test above looks at comments, and at nothing else.
func TestWhatACommentNamesIsFound(t *testing.T) {
	const source = `// Package p is cut in gone.go.
package p

const name = "here.go" // see fs/GONE.md

/* as old_test.go has it */
`
	got := filesInComments(t, "p/p.go", source)
	if want := []string{"gone.go", "fs/GONE.md", "old_test.go"}; !slices.Equal(got, want) {
		t.Errorf("comments name %q, want %q", got, want)
	}
}

// filesInComments returns the source files and documents that the comments of a Go file name.
func filesInComments(t *testing.T, name, source string) (files []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range file.Comments {
		for _, comment := range group.List {
			for _, m := range sourceFile.FindAllStringSubmatch(comment.Text, -1) {
				if !slices.Contains(files, m[1]) {
					files = append(files, m[1])
				}
			}
		}
	}
	return files
}

// TestWhatIsNotThereIsFound: the test above would say so.
func TestWhatIsNotThereIsFound(t *testing.T) {
	r := open(t)
	for content, want := range map[string][]string{
		"cut in gone.go, kept in `fs/gone.go`":           {"gone.go", "fs/gone.go"},
		"see [the map](GONE.md) and [this](read.go#x)":   {"GONE.md"},
		"the rules are those of package gone, of fs/.":   {"package gone"},
		"below oss/gone, oss/gone/x.py and cache/...":    {"oss/gone", "oss/gone/x.py"},
		"`TestGone`, `TestReadsEqualALocalCopy`":         {"TestGone"},
		"```\nmake gone && make build\n```, `make lint`": {"make gone"},
		"read.go, ../ARCHITECTURE.md, <path>/file.go":    nil,
	} {
		got := r.missing(text{"fs/text.md", content})
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(slices.Compact(got), want) {
			t.Errorf("of %q %q are missing, want %q", content, got, want)
		}
	}
}

// missing returns what a text names and the repository does not have.
func (r *repository) missing(doc text) (gone []string) {
	dir := path.Dir(doc.name)
	need := func(ok bool, what string) {
		if !ok && !slices.Contains(gone, what) {
			gone = append(gone, what)
		}
	}
	for _, m := range linked.FindAllStringSubmatch(doc.content, -1) {
		target, _, _ := strings.Cut(m[1]+m[2], "#")
		if target != "" && !strings.Contains(target, ":") && strings.HasSuffix(doc.name, ".md") {
			need(r.paths[path.Join(dir, target)], target)
		}
	}
	for _, m := range sourceFile.FindAllStringSubmatch(doc.content, -1) {
		need(r.has(dir, m[1]), m[1])
	}
	for _, m := range placed.FindAllStringSubmatch(doc.content, -1) {
		result := strings.HasPrefix(m[1], "bench/results/")
		need(result || r.has(dir, m[1]), m[1])
	}
	for _, m := range ofPackage.FindAllStringSubmatch(doc.content, -1) {
		need(r.hasPackage(m[1]), "package "+m[1])
	}
	for _, m := range namedTest.FindAllStringSubmatch(doc.content, -1) {
		need(r.tests[m[1]], m[1])
	}
	for _, m := range makeCommand.FindAllStringSubmatch(doc.content, -1) {
		need(r.makes[m[1]], "make "+m[1])
	}
	return gone
}

var (
	drawnRoom  = regexp.MustCompile(`(?m)^  (\w+)\["([\w/-]+)(?:<br/>[^"]*)?"\]$`)
	drawnArrow = regexp.MustCompile(`(?m)^  (\w+) --> (.+)$`)
)

const module = "github.com/pailfs/pailfs/"

// TestPictureShowsWhoImportsWhom compares the first picture of ARCHITECTURE.md with the imports of
// the code, without its tests.
func TestPictureShowsWhoImportsWhom(t *testing.T) {
	r := open(t)
	_, picture, _ := strings.Cut(read(t, "ARCHITECTURE.md"), "```mermaid\n")
	picture, _, _ = strings.Cut(picture, "```")
	rooms := map[string]string{} // paths by their names in the picture
	for _, m := range drawnRoom.FindAllStringSubmatch(picture, -1) {
		rooms[m[1]] = m[2]
	}
	drawn := map[string]bool{}
	for _, m := range drawnArrow.FindAllStringSubmatch(picture, -1) {
		for to := range strings.SplitSeq(m[2], " & ") {
			if rooms[m[1]] == "" || rooms[to] == "" {
				t.Errorf("the arrow from %s to %s has an end that is not drawn", m[1], to)
			}
			drawn[rooms[m[1]]+" imports "+rooms[to]] = true
		}
	}
	// roomOf returns the smallest room that a package is in.
	roomOf := func(dir string) (room string) {
		for _, at := range rooms {
			if (dir == at || strings.HasPrefix(dir, at+"/")) && len(at) > len(room) {
				room = at
			}
		}
		return room
	}
	found := map[string]bool{}
	for _, name := range r.files {
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.Contains(name, "/testdata/") {
			continue
		}
		room := roomOf(path.Dir(name))
		if room == "" {
			t.Errorf("%s is in no room of ARCHITECTURE.md: draw its package", name)
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range file.Imports {
			imported, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if dir, ours := strings.CutPrefix(imported, module); ours && roomOf(dir) != room {
				found[room+" imports "+roomOf(dir)] = true
			}
		}
	}
	if len(found) < 15 {
		t.Errorf("the code has %d arrows", len(found))
	}
	for arrow := range found {
		if !drawn[arrow] {
			t.Errorf("%s, which ARCHITECTURE.md does not show", arrow)
		}
	}
	for arrow := range drawn {
		if !found[arrow] {
			t.Errorf("ARCHITECTURE.md shows that %s; it does not", arrow)
		}
	}
}
