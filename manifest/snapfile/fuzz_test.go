package snapfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// someRows are rows of every kind.
func someRows() []Row {
	when := time.Unix(1_700_000_000, 0).UTC()
	rows := []Row{
		{Item: []byte(""), ETag: ETag{Form: SumETag, Sum: [16]byte{1}}, ModTime: when},
		{Item: []byte("a"), Size: 5, ETag: ETag{Form: PartsETag, Sum: [16]byte{2}, Parts: 7}, ModTime: when, CRC64: 9, HasCRC64: true},
		{Item: []byte("a/")},
		{Item: []byte("b"), Size: 1 << 40, ETag: ETag{Form: TextETag, Text: "odd"}},
		{Item: []byte("link"), Size: 3, Symlink: true, Attr: &Attr{Known: AttrTarget | AttrMTime, Target: "x", MTime: when}},
		{Item: []byte("none"), Attr: &Attr{Known: AttrMode | AttrUID | AttrGID, Mode: 0o644, UID: 1, GID: 2, User: []UserAttr{{"k", "v"}}}},
	}
	for i := range 20 {
		rows = append(rows, Row{Item: fmt.Appendf(nil, "train%04d", i), Size: int64(i * i), ETag: ETag{Form: SumETag}, ModTime: when})
	}
	return rows
}

func bufferOf(rows []Row) *rowBuffer {
	var b rowBuffer
	for i := range rows {
		b.add(&rows[i])
	}
	return &b
}

// sameRow reports whether a and b say the same.
func sameRow(a, b *Row) bool {
	return bytes.Equal(a.Item, b.Item) && a.Size == b.Size && a.ETag == b.ETag && a.ModTime.Equal(b.ModTime) &&
		a.Symlink == b.Symlink && a.CRC64 == b.CRC64 && a.HasCRC64 == b.HasCRC64 && a.Attr.Equal(b.Attr)
}

// decodedRow returns row i of a decoded block.
func decodedRow(names *nameBlock, fixed *fixedBlock, extras *extraBlock, i int) Row {
	r := Row{Item: names.items.at(i)}
	if names.directory(i) {
		return r
	}
	fixed.row(&r, i, names.classOf(i))
	r.ETag.Text, r.Attr = extras.texts[i], extras.attrs[i]
	return r
}

// What a block is written from comes back.
func TestBlockRoundTrip(t *testing.T) {
	row := rapid.Custom(func(t *rapid.T) Row {
		r := Row{Item: []byte(rapid.StringMatching(`[a-c]{1,5}`).Draw(t, "item"))}
		if rapid.IntRange(0, 4).Draw(t, "dir") == 0 {
			r.Item = append(r.Item, '/')
			return r
		}
		r.Size = rapid.OneOf(rapid.Int64Range(0, 200_000), rapid.Int64Range(0, 1<<62)).Draw(t, "size")
		r.ModTime = rapid.SampledFrom([]time.Time{{}, time.Unix(-1, 0).UTC(), time.Unix(1_700_000_000, 0).UTC(), time.Unix(1_700_009_999, 0).UTC()}).Draw(t, "time")
		switch r.ETag.Form = ETagForm(rapid.IntRange(0, 3).Draw(t, "form")); r.ETag.Form {
		case PartsETag:
			r.ETag.Parts = rapid.Uint64Min(1).Draw(t, "parts")
			r.ETag.Sum[3] = rapid.Byte().Draw(t, "sum")
		case SumETag:
			r.ETag.Sum[3] = rapid.Byte().Draw(t, "sum")
		case TextETag:
			r.ETag.Text = rapid.StringN(1, 10, 20).Draw(t, "text")
		case NoETag:
		}
		r.Symlink = rapid.Bool().Draw(t, "symlink")
		if r.HasCRC64 = rapid.Bool().Draw(t, "crc"); r.HasCRC64 {
			r.CRC64 = rapid.Uint64().Draw(t, "crc64")
		}
		if rapid.IntRange(0, 3).Draw(t, "attr") == 0 {
			r.Attr = (&Attr{Known: AttrSet(rapid.IntRange(0, 31).Draw(t, "known")), Mode: 0o7777, UID: 1<<32 - 1, GID: 3, MTime: time.Unix(5, 6), Target: "t"}).Normal()
		}
		return r
	})
	rapid.Check(t, func(rt *rapid.T) {
		rows := rapid.SliceOfN(row, 1, blockRows).Draw(rt, "rows")
		if rapid.Bool().Draw(rt, "alike") {
			for i := range rows {
				item := rows[i].Item
				rows[i] = rows[0]
				if rows[i].Item = item; isDirectory(item) {
					rows[i] = Row{Item: item}
				}
			}
		}
		b := bufferOf(rows)
		names, err := decodeNames(&input{b: b.appendNames(nil)}, len(rows))
		if err != nil {
			rt.Fatal(err)
		}
		fixed, err := decodeFixed(&input{b: b.appendFixed(nil, nil)}, names)
		if err != nil {
			rt.Fatal(err)
		}
		extras, err := decodeExtras(&input{b: b.extras}, names)
		if err != nil {
			rt.Fatal(err)
		}
		for i := range rows {
			got := decodedRow(names, fixed, extras, i)
			if !sameRow(&got, &rows[i]) {
				rt.Fatalf("row %d is %+v, want %+v", i, got, rows[i])
			}
			if rows[i].Directory() {
				continue
			}
			back := Row{Item: rows[i].Item}
			if !back.DecodeValue(rows[i].AppendValue(nil)) || !sameRow(&back, &rows[i]) {
				rt.Fatalf("value of row %d is %+v, want %+v", i, back, rows[i])
			}
		}
	})
}

// Numbers of every distribution come back, and those that are close take few bits.
func TestColumnRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		base := rapid.Uint64().Draw(rt, "base")
		mask := uint64(1)<<rapid.IntRange(0, 63).Draw(rt, "width")*2 - 1
		n := rapid.IntRange(1, blockRows).Draw(rt, "n")
		values := make([]uint64, n)
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		wild := rapid.IntRange(0, 20).Draw(rt, "wild")
		for i := range values {
			if values[i] = base + r.Uint64()&mask; r.IntN(100) < wild {
				values[i] = r.Uint64()
			}
		}
		encoded := appendColumn(nil, values, nil)
		in := input{b: encoded}
		c := in.column(n)
		if err := in.done(); err != nil {
			rt.Fatal(err)
		}
		for i, want := range values {
			if got := c.at(i); got != want {
				rt.Fatalf("row %d is %d, want %d (width %d)", i, got, want, c.width)
			}
		}
	})
}

func FuzzNames(f *testing.F) {
	rows := someRows()
	f.Add(bufferOf(rows).appendNames(nil), byte(len(rows)-1))
	f.Add([]byte{0, 1, 0, 1, 'a'}, byte(0))
	f.Fuzz(func(t *testing.T, payload []byte, n byte) {
		names, err := decodeNames(&input{b: payload}, int(n)+1)
		if err != nil {
			return
		}
		for i := range names.items.len() {
			if item := names.items.at(i); len(item) > MaxKey || bytes.IndexByte(item, '/') >= 0 && bytes.IndexByte(item, '/') != len(item)-1 {
				t.Fatalf("item %q", item)
			}
			names.classOf(i)
		}
		names.items.search(0, names.items.len(), "train")
	})
}

func FuzzFixed(f *testing.F) {
	rows := someRows()
	b := bufferOf(rows)
	names := b.appendNames(nil)
	f.Add(names, b.appendFixed(nil, nil), b.extras, byte(len(rows)-1))
	f.Fuzz(func(t *testing.T, payload, numbers, further []byte, n byte) {
		names, err := decodeNames(&input{b: payload}, int(n)+1)
		if err != nil {
			return
		}
		if fixed, err := decodeFixed(&input{b: numbers}, names); err == nil {
			var r Row
			for i := range names.items.len() {
				fixed.row(&r, i, names.classOf(i))
			}
		}
		if extras, err := decodeExtras(&input{b: further}, names); err == nil && len(extras.attrs) != names.items.len() {
			t.Fatalf("%d attributes", len(extras.attrs))
		}
	})
}

func FuzzDirectories(f *testing.F) {
	var b dirBuffer
	for i, prefix := range []string{"", "a/", "a/b/"} {
		b.prefixes.add([]byte(prefix))
		b.in = append(b.in, Totals{Rows: uint64(i), Files: 1, Bytes: 1 << 40})
	}
	f.Add(b.append(nil, nil), byte(2))
	f.Fuzz(func(t *testing.T, payload []byte, n byte) {
		d, err := decodeDirectories(&input{b: payload}, int(n)+1)
		if err != nil {
			return
		}
		for i := range d.prefixes.len() {
			if x := d.dir(0, i); x.End() < x.First {
				t.Fatalf("directory %d: %+v", i, x)
			}
		}
	})
}

func FuzzPage(f *testing.F) {
	var p pageBuffer
	for i := range 3 {
		p.places = append(p.places, place{offset: int64(100 * i), parts: [3]uint32{10, 20, 30}})
		p.separators.add([]byte{byte('a' + i)})
	}
	f.Add(p.append(nil), byte(2))
	f.Fuzz(func(t *testing.T, payload []byte, n byte) {
		p, err := decodePage(&input{b: payload}, int(n)+1, 1<<20)
		if err != nil {
			return
		}
		for _, x := range p.places {
			if x.offset < 0 || x.end() > 1<<20 || x.end() < x.offset {
				t.Fatalf("%+v", x)
			}
		}
	})
}

func FuzzFooter(f *testing.F) {
	foot := footer{
		info: Info{Generation: 1, Root: "a/", Properties: map[string]string{"k": "v"}, Directories: 1, Rows: 1, Examples: []Example{{"k", "r"}}},
		rows: root{places: []place{{offset: 40, parts: [3]uint32{9}}}, separators: []string{""}},
		dirs: root{places: []place{{offset: 60, parts: [3]uint32{9}}}, separators: []string{""}},
	}
	f.Add(foot.append(nil))
	f.Fuzz(func(t *testing.T, payload []byte) {
		got, err := decodeFooter(payload, 1<<20)
		if err != nil {
			return
		}
		if len(got.rows.places) > len(payload) || len(got.dirs.places) == 0 {
			t.Fatalf("%d and %d pages of %d bytes", len(got.rows.places), len(got.dirs.places), len(payload))
		}
	})
}

func FuzzUnpack(f *testing.F) {
	p, err := newPacker()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(p.pack(nil, bytes.Repeat([]byte("abc"), 100), 0))
	f.Add(p.pack(nil, []byte("x"), 0))
	u, err := newUnpacker()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		err := u.unpack(payload, maxNames, func(in *input) error {
			if len(in.b) > maxNames {
				t.Fatalf("%d bytes", len(in.b))
			}
			return nil
		})
		if err != nil && !errors.Is(err, errMalformed) {
			t.Fatal(err)
		}
	})
}

// write returns the file of the directories.
func write(t testing.TB, info Info, dirs map[string][]Row) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, info)
	if err != nil {
		t.Fatal(err)
	}
	var prefixes []string
	for prefix := range dirs {
		prefixes = append(prefixes, prefix)
	}
	slices.Sort(prefixes)
	for _, prefix := range prefixes {
		if prefix != "" {
			if err := w.Directory(prefix); err != nil {
				t.Fatal(err)
			}
		}
		for i := range dirs[prefix] {
			if err := w.Row(&dirs[prefix][i], false); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := w.Finish(nil); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// reseal makes the checksums of a file right again, as far as its places are: what
// a fuzzer changed is then decoded.
func reseal(data []byte) {
	if len(data) < headerSize+trailerSize {
		return
	}
	trailer := data[len(data)-trailerSize:]
	binary.LittleEndian.PutUint32(data[28:], checksumOf(data[:28]))
	copy(trailer[24:], data[16:24])
	binary.LittleEndian.PutUint64(trailer, uint64(len(data)))
	at, size := binary.LittleEndian.Uint64(trailer[8:]), uint64(binary.LittleEndian.Uint32(trailer[16:]))
	file := binary.LittleEndian.Uint64(data[16:])
	seal := func(k kind, number uint64, offset int64, length uint32) []byte {
		if length < crcSize || offset < 0 || offset+int64(length) > int64(len(data)) {
			return nil
		}
		payload := data[offset : offset+int64(length)-crcSize]
		binary.LittleEndian.PutUint32(data[offset+int64(length)-crcSize:], checksum(file, k, number, payload))
		return payload
	}
	if at+size == uint64(len(data)-trailerSize) {
		payload := data[at : at+size]
		if f, err := decodeFooter(payload, int64(at)); err == nil {
			for _, x := range []struct {
				page  kind
				parts []kind
				root  root
				n     uint64
			}{{kindRowPage, []kind{kindNames, kindFixed, kindExtras}, f.rows, f.info.Rows}, {kindDirPage, []kind{kindDirs}, f.dirs, f.info.Directories}} {
				for i, p := range x.root.places {
					page, err := decodePage(&input{b: seal(x.page, uint64(i), p.offset, p.parts[0])}, int(min(pageBlocks, blocksOf(x.n)-uint64(i)*pageBlocks)), int64(len(data)))
					if err != nil {
						continue
					}
					for j, b := range page.places {
						offset := b.offset
						for k, part := range x.parts {
							seal(part, uint64(i*pageBlocks+j), offset, b.parts[k])
							offset += int64(b.parts[k])
						}
					}
				}
			}
		}
		binary.LittleEndian.PutUint32(trailer[20:], checksum(file, kindFooter, 0, payload))
	}
	binary.LittleEndian.PutUint32(trailer[36:], checksumOf(trailer[:36]))
}

// FuzzFile changes whole files, and puts their checksums right again.
func FuzzFile(f *testing.F) {
	f.Add(write(f, Info{Root: "r/"}, map[string][]Row{"": someRows(), "a/": {{Item: []byte("x"), Size: 1}}}))
	f.Add(write(f, Info{}, nil))
	if golden, err := os.ReadFile("../testdata/version1.manifest"); err == nil {
		f.Add(golden)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		data = slices.Clone(data)
		for range 2 {
			useFile(t, data)
			reseal(data)
		}
	})
}

// useFile asks the file everything. It must give errors, or answers.
func useFile(t *testing.T, data []byte) {
	file, err := OpenAt("fuzzed", bytes.NewReader(data), int64(len(data)), 1<<20)
	if err != nil {
		if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrVersion) {
			t.Fatal(err)
		}
		return
	}
	defer file.Close()
	check := func(err error) {
		if err != nil && !errors.Is(err, ErrDamaged) {
			t.Fatal(err)
		}
	}
	check(file.Check(nil))
	_, _, err = file.Below("")
	check(err)
	for number := range min(file.Info().Directories, 1000) {
		d, prefix, err := file.DirectoryAt(number)
		check(err)
		if err != nil {
			continue
		}
		_, _, err = file.Directory(prefix)
		check(err)
		_, _, err = file.Below(prefix)
		check(err)
		r := file.Reader()
		_, _, err = r.Search(&d, d.First, "train")
		check(err)
		var row, found Row
		for n := d.First; n < min(d.End(), d.First+1000); n++ {
			err := r.Row(&row, n)
			check(err)
			if err == nil {
				_, err := file.Find(&d, string(row.Item), &found)
				check(err)
			}
		}
	}
}
