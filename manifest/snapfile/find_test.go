package snapfile

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// opened returns the file of the directories.
func opened(t testing.TB, dirs map[string][]Row) *File {
	t.Helper()
	data := write(t, Info{}, dirs)
	f, err := OpenAt("test", bytes.NewReader(data), int64(len(data)), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// images returns n rows as data sets have.
func images(n int) []Row {
	rows := make([]Row, n)
	for i := range rows {
		rows[i] = Row{
			Item: fmt.Appendf(nil, "n%06d_%d.JPEG", i, i%977), Size: int64(i * i), ModTime: time.Unix(1_700_000_000+int64(i), 0).UTC(),
			ETag: ETag{Form: SumETag, Sum: [16]byte{byte(i), byte(i >> 8)}}, CRC64: uint64(i) << 40, HasCRC64: true,
		}
	}
	return rows
}

// dirAt returns a directory of the file.
func dirAt(t testing.TB, f *File, prefix string) Dir {
	t.Helper()
	d, ok, err := f.Directory(prefix)
	if err != nil || !ok {
		t.Fatalf("directory %q: %v, %v", prefix, ok, err)
	}
	return d
}

// A name that is looked up among names at random costs no decoded block, and the
// second one in a block finds it decoded.
func TestBlocksAreDecodedWhenTheyAreMetAgain(t *testing.T) {
	rows := images(20 * blockRows)
	f := opened(t, map[string][]Row{"": rows})
	d := dirAt(t, f, "")
	find := func(i int) {
		t.Helper()
		var got Row
		if ok, err := f.Find(&d, string(rows[i].Item), &got); err != nil || !ok || !sameRow(&got, &rows[i]) {
			t.Fatalf("row %d: %+v, %v, %v, want %+v", i, got, ok, err, rows[i])
		}
	}
	for block := range 20 {
		find(block*blockRows + 7*block)
	}
	for block := range uint64(20) {
		if f.cache.get(kindNames, block) != nil || f.cache.get(kindFixed, block) != nil {
			t.Fatalf("block %d was decoded for one name", block)
		}
	}
	find(5*blockRows + 100)
	if f.cache.get(kindNames, 5) == nil || f.cache.get(kindFixed, 5) == nil {
		t.Error("a block that was met again is not held")
	}
	_, before := f.Held()
	for i := range blockRows {
		find(5*blockRows + i)
	}
	if _, after := f.Held(); after != before {
		t.Errorf("%d parts were read for names of a block that is held", after-before)
	}
}

// What is found in a block as it lies in the file is what its decoded rows say, for
// every name that is there and for those beside it.
func TestGlanceFindsWhatReadingTells(t *testing.T) {
	item := rapid.Custom(func(t *rapid.T) string {
		return rapid.OneOf(
			rapid.StringMatching(`[ab]{0,6}`), rapid.StringMatching(`train-0{0,3}[0-9]{1,3}\.(jpg|cls)`),
			rapid.Map(rapid.IntRange(0, 300), func(n int) string { return strings.Repeat("x", n) }),
		).Draw(t, "item")
	})
	looked := 0
	rapid.Check(t, func(rt *rapid.T) {
		dirs, wanted := map[string][]Row{}, rapid.SliceOfN(item, 0, 40).Draw(rt, "wanted")
		root := []Row{}
		for i := range rapid.IntRange(1, 4).Draw(rt, "directories") {
			items := rapid.SliceOfNDistinct(item, 1, 400, rapid.ID).Draw(rt, "items")
			slices.Sort(items)
			rows := images(len(items))
			for j := range rows {
				rows[j].Item = []byte(items[j])
				if rapid.IntRange(0, 50).Draw(rt, "odd") == 0 {
					rows[j] = Row{Item: rows[j].Item, Size: 9, Symlink: true, ETag: ETag{Form: PartsETag, Parts: 4}}
				}
			}
			prefix := fmt.Sprintf("d%d/", i)
			root = append(root, Row{Item: []byte(prefix)})
			dirs[prefix] = rows
			wanted = append(wanted, items...)
		}
		if rapid.Bool().Draw(rt, "full") {
			// So that the directories below do not share a block with their own rows.
			for i := len(root); i < blockRows; i++ {
				root = append(root, Row{Item: fmt.Appendf(nil, "e%04d", i), Size: 1})
			}
		}
		dirs[""] = root
		f := opened(t, dirs)
		for prefix, rows := range dirs {
			d := dirAt(t, f, prefix)
			for _, s := range wanted {
				at, there := slices.BinarySearchFunc(rows, s, func(r Row, s string) int { return strings.Compare(string(r.Item), s) })
				block, err := f.search(kindRowPage, d.First/blockRows, (d.End()-1)/blockRows, s)
				if err != nil {
					rt.Fatal(err)
				}
				var got Row
				found, ok := f.glance(&d, block, s, &got)
				if ok {
					looked++
				}
				if ok && (found != there || found && !sameRow(&got, &rows[at])) {
					rt.Fatalf("%q in %q at a glance: %v, %+v, want %v", s, prefix, found, got, there)
				}
				for range 2 {
					got = Row{}
					found, err := f.Find(&d, s, &got)
					if err != nil || found != there || found && !sameRow(&got, &rows[at]) {
						rt.Fatalf("%q in %q: %v, %+v, %v, want %v", s, prefix, found, got, err, there)
					}
				}
			}
		}
	})
	if looked == 0 {
		t.Error("no block was looked through as it lies in the file")
	}
}

// Damage is told by the first lookup that meets it, not by the second.
func TestFindTellsOfDamage(t *testing.T) {
	rows := images(3 * blockRows)
	data := write(t, Info{}, map[string][]Row{"": rows})
	good, err := OpenAt("good", bytes.NewReader(data), int64(len(data)), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	where, err := good.place(kindRowPage, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []int64{where.offset + 5, where.offset + int64(where.parts[0]) + 5, where.end() - 1} {
		bad := slices.Clone(data)
		bad[at] ^= 0x10
		f, err := OpenAt("bad", bytes.NewReader(bad), int64(len(bad)), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		d := dirAt(t, f, "")
		for i, damaged := range map[int]bool{0: false, blockRows + 9: true, 2 * blockRows: false} {
			var got Row
			_, err := f.Find(&d, string(rows[i].Item), &got)
			if (err != nil) != damaged {
				t.Errorf("byte %d is damaged, and row %d says %v", at, i, err)
			}
		}
		if n, first := f.Damage(); n == 0 || first == nil {
			t.Errorf("byte %d: %d times damaged, first %v", at, n, first)
		}
	}
}
