package build

import (
	"bytes"
	"compress/gzip"
	"crypto/md5"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/oss/ossemu/ossemutest"
)

const (
	inventoryDir = "inventory/source-bucket/daily/"
	inventoryKey = inventoryDir + "2026-11-18T07-13Z/manifest.json"
)

// golden puts the inventory of testdata into the emulator, as the service lays it
// out.
func golden(t *testing.T, e *ossemutest.Emulator) {
	t.Helper()
	for name, key := range map[string]string{
		"manifest.json":      inventoryKey,
		"manifest.checksum":  strings.TrimSuffix(inventoryKey, ".json") + ".checksum",
		"data/5f1e.csv.gz":   inventoryDir + "data/5f1e.csv.gz",
		"data/5f1e-1.csv.gz": inventoryDir + "data/5f1e-1.csv.gz",
	} {
		text, err := os.ReadFile(filepath.Join("testdata", "inventory", name))
		if err != nil {
			t.Fatal(err)
		}
		e.Put(key, text)
	}
}

// fromInventory is the configuration of a build from the inventory in the emulator.
func fromInventory(t *testing.T, b Bucket) Config {
	t.Helper()
	v, err := OpenInventory(t.Context(), b, ossemutest.Bucket, inventoryKey, "source-bucket")
	if err != nil {
		t.Fatal(err)
	}
	cfg := config(t, b)
	cfg.Name, cfg.Source = "source-bucket", v
	return cfg
}

func TestInventoryIsReadAsTheServiceWritesIt(t *testing.T) {
	e, b := store(t)
	golden(t, e)
	e.Server.ResetStats()
	cfg := fromInventory(t, b)
	got, result := mustBuild(t, cfg)
	at := func(second int) time.Time { return time.Date(2026, 11, 18, 6, 44, second, 0, time.UTC) }
	const tag = "0123456789ABCDEF0123456789ABCDE"
	want := []manifest.Record{
		{Key: "train/a+b c.jpg", ETag: tag + "0", Size: 115000, ModTime: at(41), CRC64: 11051210869376104954, HasCRC64: true},
		{Key: "train/big.tar", ETag: tag + "4-1400", Size: 7000000000, ModTime: at(43), CRC64: 18446744073709551615, HasCRC64: true},
		{Key: "train/with space", ETag: tag + "6", Size: 3, ModTime: at(45)},
		{Key: "train/日本/\"x\".jpg", ETag: tag + "1", Size: 1, ModTime: at(42), CRC64: 1, HasCRC64: true},
		{Key: "validation/z", ETag: tag + "5", ModTime: at(44)},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("records (-want +got):\n%s", d)
	}
	info := open(t, result.Path).Info()
	if want := time.Unix(1763450000, 0); !info.Began.Equal(want) || !info.Ended.After(want) {
		t.Errorf("the manifest is from %s to %s, and the scan began at %s", info.Began, info.Ended, want)
	}
	if info.Source != "inventory oss://"+ossemutest.Bucket+"/"+inventoryKey {
		t.Errorf("the source is %q", info.Source)
	}
	if n := e.Requests("ListObjectsV2") + e.Requests("ListObjects"); n != 0 {
		t.Errorf("%d listings", n)
	}
	cfg = fromInventory(t, b)
	cfg.Prefix = "validation/"
	if got, _ := mustBuild(t, cfg); len(got) != 1 || got[0].Key != "validation/z" {
		t.Errorf("below a prefix: %q", keysOf(got))
	}
	cfg = fromInventory(t, b)
	cfg.Prefix = "test/"
	if _, err := try(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), `no key below "test/"`) {
		t.Errorf("below a prefix that it does not cover: %v", err)
	}
}

// inventoryOf stores an inventory of these files of rows.
func inventoryOf(t testing.TB, e *ossemutest.Emulator, schema string, files ...string) {
	t.Helper()
	list := map[string]any{
		"creationTimestamp": "1763450000", "fileFormat": "CSV", "fileSchema": schema, "sourceBucket": "source-bucket",
	}
	var described []map[string]any
	for i, rows := range files {
		var zipped bytes.Buffer
		z := gzip.NewWriter(&zipped)
		if _, err := z.Write([]byte(rows)); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		key := fmt.Sprintf("%sdata/%d.csv.gz", inventoryDir, i)
		e.Put(key, zipped.Bytes())
		described = append(described, map[string]any{"key": key, "size": zipped.Len(), "MD5checksum": fmt.Sprintf("%x", md5.Sum(zipped.Bytes()))})
	}
	list["files"] = described
	text, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	e.Put(inventoryKey, text)
	e.Delete(strings.TrimSuffix(inventoryKey, ".json") + ".checksum")
}

const plainSchema = "Bucket, Key, Size, LastModifiedDate, ETag"

func plainRow(key string) string {
	return fmt.Sprintf("source-bucket,%s,5,2026-11-18T06:44:41.000Z,0123456789ABCDEF0123456789ABCDEF\n", key)
}

func TestBrokenInventoriesAreRefused(t *testing.T) {
	e, b := store(t)
	edit := func(from, to string) func() {
		return func() {
			e.Put(inventoryKey, bytes.Replace(e.Get(inventoryKey), []byte(from), []byte(to), 1))
			e.Delete(strings.TrimSuffix(inventoryKey, ".json") + ".checksum")
		}
	}
	data := inventoryDir + "data/5f1e.csv.gz"
	for name, test := range map[string]struct {
		harm func()
		want string
	}{
		"no manifest.json":      {func() { e.Delete(inventoryKey) }, "no such object"},
		"manifest.json edited":  {func() { e.Put(inventoryKey, append(e.Get(inventoryKey), ' ')) }, "MD5"},
		"no JSON":               {edit("{", "<"), "no JSON"},
		"ORC":                   {edit(`"CSV"`, `"ORC"`), `"ORC"`},
		"of another bucket":     {edit(`"sourceBucket": "source-bucket"`, `"sourceBucket": "other"`), `"other"`},
		"no ETag":               {edit(" ETag,", " Etag2,"), "no ETag"},
		"no size":               {edit(" Size,", " Volume,"), "no Size"},
		"incremental":           {edit(`"creationTimestamp"`, `"startTimestamp": "1763450000", "creationTimestamp"`), "incremental"},
		"incremental rows":      {edit(" StorageClass,", " RecordType,"), "incremental"},
		"no time":               {edit(`"1763450000"`, `"yesterday"`), "yesterday"},
		"file without checksum": {edit(`"MD5checksum"`, `"md4"`), "not described"},
		"a column too many":     {edit("Crc64", "Crc64, TransitionTime"), "row 1: it has 15 fields"},
		"file missing":          {func() { e.Delete(data) }, data},
		"file cut short":        {func() { e.Put(data, e.Get(data)[:100]) }, "bytes, and manifest.json says"},
		"file damaged": {func() {
			text := e.Get(data)
			text[len(text)/2] ^= 1
			e.Put(data, text)
		}, "MD5"},
		"no gzip":               {func() { inventoryOf(t, e, plainSchema); e.Put(data, []byte("x")); putFile(t, e, data, []byte("x")) }, "decompress"},
		"no number":             {func() { inventoryOf(t, e, plainSchema, plainRow("a")+"source-bucket,b,five,2026-11-18T06:44:41Z,E\n") }, `row 2: its size "five"`},
		"negative size":         {func() { inventoryOf(t, e, plainSchema, "source-bucket,b,-5,2026-11-18T06:44:41Z,E\n") }, `"-5"`},
		"no date":               {func() { inventoryOf(t, e, plainSchema, "source-bucket,b,5,18.11.2026 06:44:41,E\n") }, "18.11.2026"},
		"date that is none":     {func() { inventoryOf(t, e, plainSchema, "source-bucket,b,5,2026-02-30T06:44:41Z,E\n") }, "2026-02-30"},
		"another zone":          {func() { inventoryOf(t, e, plainSchema, "source-bucket,b,5,2026-11-18T06:44:41+08:00,E\n") }, "+08:00"},
		"no key":                {func() { inventoryOf(t, e, plainSchema, plainRow("")) }, "0 bytes"},
		"key too long":          {func() { inventoryOf(t, e, plainSchema, plainRow(strings.Repeat("k", 1024))) }, "1024 bytes"},
		"not URL-encoded":       {func() { inventoryOf(t, e, plainSchema, plainRow("100%")) }, "not URL-encoded"},
		"row of another bucket": {func() { inventoryOf(t, e, plainSchema, "other,b,5,2026-11-18T06:44:41Z,E\n") }, `"other"`},
		"no entity tag":         {func() { inventoryOf(t, e, plainSchema, "source-bucket,b,5,2026-11-18T06:44:41Z,\n") }, "no ETag"},
		"quote left open":       {func() { inventoryOf(t, e, plainSchema, "\"source-bucket,b,5\n") }, "quote"},
		"quote in the middle":   {func() { inventoryOf(t, e, plainSchema, "\"source\"-bucket,b,5,x,E\n") }, "quote"},
		"endless row":           {func() { inventoryOf(t, e, plainSchema, strings.Repeat("x", 2*maxRow)) }, "longer than"},
		"empty":                 {func() { inventoryOf(t, e, plainSchema, "") }, "no key below"},
		"no files":              {func() { inventoryOf(t, e, plainSchema) }, "no key below"},
	} {
		t.Run(name, func(t *testing.T) {
			golden(t, e)
			test.harm()
			v, err := OpenInventory(t.Context(), b, ossemutest.Bucket, inventoryKey, "source-bucket")
			if err == nil {
				cfg := config(t, b)
				cfg.Name, cfg.Source = "source-bucket", v
				_, err = try(t.Context(), cfg)
			}
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want something of %q", err, test.want)
			}
		})
	}
}

// putFile makes an inventory of one file with this content.
func putFile(t testing.TB, e *ossemutest.Emulator, key string, content []byte) {
	t.Helper()
	e.Put(key, content)
	e.Put(inventoryKey, fmt.Appendf(nil, `{"creationTimestamp":"1","fileFormat":"CSV","fileSchema":%q,"sourceBucket":"source-bucket","files":[{"key":%q,"size":%d,"MD5checksum":"%x"}]}`,
		plainSchema, key, len(content), md5.Sum(content)))
}

// It is interrupted at every request, and at every batch: the result is the same,
// and a file that is done is not fetched again.
func TestInterruptedInventoryGoesOn(t *testing.T) {
	e, b := store(t)
	var files []string
	var want int
	for i := range 4 {
		var rows strings.Builder
		for j := range 2*rowsPerBatch + 100*i {
			rows.WriteString(plainRow(fmt.Sprintf("%d/%06d", i, j)))
			want++
		}
		files = append(files, rows.String())
	}
	inventoryOf(t, e, plainSchema, files...)
	s := &stopAfter{Bucket: b, unlimited: true, err: errKilled}
	cfg := fromInventory(t, s)
	s.unlimited = false
	attempts := 0
	for ; ; attempts++ {
		s.heads, s.ranges = 1+attempts, 1+attempts
		result, err := try(t.Context(), cfg)
		if err == nil {
			if got := recordsOf(t, open(t, result.Path)); len(got) != want {
				t.Errorf("%d objects, want %d", len(got), want)
			}
			break
		}
		if !errors.Is(err, errKilled) || attempts > 50 {
			t.Fatal(err)
		}
	}
	if attempts < 2 {
		t.Errorf("it was interrupted %d times only", attempts)
	}
	// A log that ends within a file: its rows are read again, not logged twice.
	log, err := os.ReadFile(filepath.Join(cfg.StateDir, progressFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []int{3, 5, 8} {
		if err := os.WriteFile(filepath.Join(cfg.StateDir, progressFile), log[:len(log)*part/10], 0o600); err != nil {
			t.Fatal(err)
		}
		s.unlimited = true
		got, result := mustBuild(t, cfg)
		if len(got) != want || result.Replayed == 0 || result.Summary.Duplicates != 0 {
			t.Errorf("%d objects of %d, %+v", len(got), want, result)
		}
	}
}

// Rows are read as encoding/csv reads them.
func TestRowsAreCSV(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fields := rapid.SliceOfN(rapid.StringMatching(`[a-c",]{0,5}`), 1, 5).Draw(t, "fields")
		quoted := make([]string, len(fields))
		for i, f := range fields {
			quoted[i] = `"` + strings.ReplaceAll(f, `"`, `""`) + `"`
		}
		rest := []byte(strings.Join(quoted, ","))
		for i, more := 0, true; more; i++ {
			var field []byte
			var err error
			if field, rest, more, err = cutField(rest); err != nil {
				t.Fatal(err)
			}
			if string(field) != fields[i] || more != (i+1 < len(fields)) {
				t.Fatalf("field %d is %q (more: %v), want %q", i, field, more, fields[i])
			}
		}
	})
}

func FuzzRows(f *testing.F) {
	c, err := parseSchema(plainSchema)
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(plainRow("a")))
	f.Add([]byte(`"source-bucket","a""b","5","2026-11-18T06:44:41.000Z","E"`))
	f.Add([]byte(`"""`))
	f.Fuzz(func(t *testing.T, line []byte) {
		var fields [][]byte
		for rest, more := line, true; more; {
			var field []byte
			var err error
			if field, rest, more, err = cutField(rest); err != nil {
				return
			}
			fields = append(fields, field)
		}
		if len(fields) != c.count {
			return
		}
		p := rowBatch{}
		if p.add(&Build{}, &c, fields, "source-bucket") == nil {
			for _, r := range p.records() {
				if r.Key == "" || r.ETag == "" || r.Size < 0 {
					t.Errorf("%q gave %+v", line, r)
				}
			}
		}
	})
}

var _ oss.Bucket = (*stopAfter)(nil)
