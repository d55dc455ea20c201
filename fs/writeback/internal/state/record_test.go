package state

import (
	"bytes"
	"flag"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pailfs/pailfs/fs/writeback/internal/journal"
)

var update = flag.Bool("update", false, "rewrite the golden journal")

// fill gives every field of a record a value of its own.
func fill(v reflect.Value, n *int) {
	if v.Kind() == reflect.Pointer && v.IsNil() {
		return
	}
	*n++
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.Kind() == reflect.Pointer {
			fill(v.Elem(), n)
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(int64(*n), 0).UTC()))
			return
		}
		for _, field := range v.Fields() {
			fill(field, n)
		}
	case reflect.String:
		v.SetString("text-" + string(rune('a'+*n%26)))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int64:
		v.SetInt(int64(-*n * 1000))
	case reflect.Uint64, reflect.Uint32, reflect.Uint8:
		v.SetUint(uint64(*n))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			if v.Type().Elem() == reflect.TypeFor[Record]() {
				v.Index(i).Set(reflect.ValueOf(&Durable{File: uint64(i), Gen: 7}))
				continue
			}
			fill(v.Index(i), n)
		}
	}
}

// lastKind is the highest kind; unused is how many below it are none.
const (
	lastKind = kindPutOff
	unused   = 2
)

// oneOfEach returns a record of every kind.
func oneOfEach() []Record {
	var all []Record
	n := 0
	add := func(k recordKind) {
		if r := newRecord(k); r != nil {
			fill(reflect.ValueOf(r), &n)
			all = append(all, r)
		}
	}
	for k := kindBoot; k <= kindSnapDirAttr; k++ {
		if k < kindPartial || k > kindRebased {
			add(k)
		}
	}
	// They came last.
	for k := kindPartial; k <= kindRebased; k++ {
		add(k)
	}
	for k := kindXAttr; k <= lastKind; k++ {
		add(k)
	}
	return all
}

func TestEveryRecordComesBackAsItWasWritten(t *testing.T) {
	all := oneOfEach()
	if len(all) != int(lastKind)-unused {
		t.Fatalf("%d kinds, want %d", len(all), int(lastKind)-unused)
	}
	for _, r := range all {
		got, err := DecodeBody(AppendBody(nil, r))
		if err != nil {
			t.Errorf("%T: %v", r, err)
			continue
		}
		if diff := cmp.Diff(r, got); diff != "" {
			t.Errorf("%T (-written +read):\n%s", r, diff)
		}
	}
}

func TestJournalIsWhatItWas(t *testing.T) {
	b := journal.Header()
	for _, r := range oneOfEach() {
		b = Frame(b, r)
	}
	if *update {
		if err := os.WriteFile("testdata/journal.golden", b, 0o644); err != nil { //nolint:gosec // it is part of the source
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/journal.golden")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b, want) {
		t.Error("the format has changed: give it another version, or undo that")
	}
}

func FuzzDecode(f *testing.F) {
	for _, r := range oneOfEach() {
		f.Add(AppendBody(nil, r))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := DecodeBody(b)
		if err != nil {
			return
		}
		again, err := DecodeBody(AppendBody(nil, r))
		if err != nil {
			t.Fatalf("%#v does not come back: %v", r, err)
		}
		if diff := cmp.Diff(r, again); diff != "" {
			t.Fatalf("%T (-first +second):\n%s", r, diff)
		}
	})
}
