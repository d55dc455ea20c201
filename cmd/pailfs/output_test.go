package main

import (
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/doctor"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/ls"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/programtest"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/top"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/wire"
	"github.com/pailfs/pailfs/fs/writeback"
	"github.com/pailfs/pailfs/prefetch/residency"
	"github.com/pailfs/pailfs/prefetch/warm"
)

// outputs are the commands with --json: what they print, and of what type it is.
var outputs = []struct {
	name   string
	prints string
	value  any
	help   interface{ Help() string }
}{
	{"status", "one document, what the daemon says", wire.Status{}, statusCmd{}},
	{"ls", "one document", ls.Report{}, ls.Cmd{}},
	{"top", "a document a look, each on a line of its own", top.Frame{}, top.Cmd{}},
	{"doctor", "one document", doctor.Report{}, doctor.Cmd{}},
	{"staged ls", "one document", writeback.Report{}, stagedLsCmd{}},
	{"warm", "a document a path, each on a line of its own; the last one has the totals under `total`", warm.Result{}, warmCmd{}},
	{"evict", "a document a path, each on a line of its own", residency.Evicted{}, evictCmd{}},
	{"config", "a list", []settingInForce{}, configCmd{}},
}

// key is a key of a document, and the type of its value.
type key struct{ path, kind string }

// keysOf returns the keys of a type, as encoding/json names them, in the order of the fields.
func keysOf(at string, t reflect.Type) (all []key) {
	switch t.Kind() {
	case reflect.Pointer:
		return keysOf(at, t.Elem())
	case reflect.Slice:
		return keysOf(at+"[]", t.Elem())
	case reflect.Map:
		return append([]key{{at + ".*", kindOf(t.Elem())}}, keysOf(at+".*", t.Elem())...)
	case reflect.Struct:
	default:
		return nil
	}
	if kindOf(t) != "object" {
		return nil
	}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported() && !f.Anonymous:
			continue
		case name == "" && f.Anonymous:
			all = append(all, keysOf(at, f.Type)...)
			continue
		case name == "":
			name = f.Name
		}
		path := strings.TrimPrefix(at+"."+name, ".")
		all = append(all, key{path, kindOf(f.Type)})
		all = append(all, keysOf(path, f.Type)...)
	}
	return all
}

// kindOf returns what JSON makes of a type.
func kindOf(t reflect.Type) string {
	if t == reflect.TypeFor[time.Time]() {
		return "time"
	}
	if t.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return "text"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return kindOf(t.Elem())
	case reflect.Slice:
		return "list"
	case reflect.Map, reflect.Struct:
		return "object"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "text"
	default:
		return "number"
	}
}

// TestOutputDocumentSaysWhatJSONGives: keys and exit codes are those of the program.
func TestOutputDocumentSaysWhatJSONGives(t *testing.T) {
	var b strings.Builder
	for _, o := range outputs {
		_, codes, found := strings.Cut(o.help.Help(), "Exit codes: ")
		codes, _, _ = strings.Cut(codes, "\n")
		if !found {
			t.Errorf("pailfs %s --help has no exit codes", o.name)
		}
		fmt.Fprintf(&b, "\n## pailfs %s\n\nPrints %s.\nExit codes: %s\n\n| key | value |\n|---|---|\n", o.name, o.prints, codes)
		for _, k := range keysOf("", reflect.TypeOf(o.value)) {
			fmt.Fprintf(&b, "| `%s` | %s |\n", k.path, k.kind)
		}
	}
	compareDocument(t, "OUTPUT.md", b.String()+"\n")
}

// strangers returns the keys of a document that are not among those known.
func strangers(known map[string]bool, at string, v any) (all []string) {
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			path := strings.TrimPrefix(at+"."+name, ".")
			if known[at+".*"] {
				path = at + ".*"
			} else if !known[path] {
				all = append(all, path)
			}
			all = append(all, strangers(known, path, value)...)
		}
	case []any:
		for _, value := range v {
			all = append(all, strangers(known, at+"[]", value)...)
		}
	}
	return all
}

// TestWhatIsPrintedIsInTheDocument: a mount and the commands about it print no key that is not
// there.
func TestWhatIsPrintedIsInTheDocument(t *testing.T) {
	s := programtest.NewScene(t)
	programtest.StartForeground(t, programtest.Environ(), s.At, s.MountArgs()...)
	s.Reads()
	for name, args := range map[string][]string{
		"status": {s.At}, "ls": {s.At}, "top": {"--once", "--interval=100ms", s.At}, "doctor": {}, "warm": {s.At + "/dir"}, "evict": {s.At + "/dir"}, "config": {},
	} {
		known := map[string]bool{}
		for _, o := range outputs {
			if o.name == name {
				for _, k := range keysOf("", reflect.TypeOf(o.value)) {
					known[k.path] = true
				}
			}
		}
		o := programtest.Run(t, programtest.Environ(), append([]string{name, "--json"}, args...)...)
		documents := json.NewDecoder(strings.NewReader(o.Stdout))
		read := 0
		for ; documents.More(); read++ {
			var document any
			if err := documents.Decode(&document); err != nil {
				t.Fatalf("%s: %v: %s%s", name, err, o.Stdout, o.Stderr)
			}
			if totals, is := document.(map[string]any); is && slices.Equal(slices.Collect(maps.Keys(totals)), []string{"total"}) {
				continue
			}
			if more := strangers(known, "", document); len(more) > 0 {
				t.Errorf("%s prints %v, which OUTPUT.md does not have", name, more)
			}
		}
		if read == 0 {
			t.Errorf("%s prints nothing: %s", name, o.Stderr)
		}
	}
}
