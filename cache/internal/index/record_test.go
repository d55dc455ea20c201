package index

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/pailfs/pailfs/cache/internal/content"
	"github.com/pailfs/pailfs/oss"
)

var goldenID = content.Identify("oss://bucket", oss.Object{Key: "dir/file.bin", ETag: "0123456789ABCDEF0123456789ABCDEF", Size: 200_000})

func goldenRecords() (Object, *Segment, content.Use) {
	object := Object{
		Key: "dir/file.bin", ETag: "0123456789ABCDEF0123456789ABCDEF", Size: 200_000,
		Stored: 131_072 + 4096, CRC64: 0x995DC9BBDF1939FA, HasCRC64: true, Checked: true,
	}
	segment := new(Segment)
	for _, b := range []int{0, 1, 3} {
		segment.Blocks.Add(b, b+1)
		segment.CRC32[b] = 0x01020300 + uint32(b)
	}
	return object, segment, content.Use{Last: 1_750_000_000, Released: true}
}

// TestFormatIsWhatItWas fails when the bytes on disk change. They must not without
// a new version of the format.
func TestFormatIsWhatItWas(t *testing.T) {
	object, segment, use := goldenRecords()
	key := segmentKey(goldenID, 7)
	lines := [][]byte{goldenID[:], appendObjectRecord(nil, goldenID, object), key, appendSegmentRecord(nil, key, segment), appendUseRecord(nil, goldenID, use)}
	var got bytes.Buffer
	for _, l := range lines {
		got.WriteString(hex.EncodeToString(l) + "\n")
	}
	golden := filepath.Join("testdata", "format1.hex")
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("the format has changed:\n%s\nit was\n%s", got.Bytes(), want)
	}
	// And what was written then is still understood.
	var raw [][]byte
	for l := range bytes.Lines(want) {
		b, err := hex.DecodeString(string(bytes.TrimSpace(l)))
		if err != nil {
			t.Fatal(err)
		}
		raw = append(raw, b)
	}
	if r, err := parseObjectRecord(content.Identity(raw[0]), raw[1]); err != nil || r != object {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := parseSegmentRecord(raw[2], raw[3]); err != nil || *r != *segment {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := parseUseRecord(content.Identity(raw[0]), raw[4]); err != nil || r != use {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestRecordsThatAreDamagedAreNoticed(t *testing.T) {
	object, segment, use := goldenRecords()
	key := segmentKey(goldenID, 7)
	for name, c := range map[string]struct {
		record []byte
		parse  func(key, b []byte) error
		key    []byte
	}{
		"object":  {appendObjectRecord(nil, goldenID, object), func(k, b []byte) error { _, err := parseObjectRecord(content.Identity(k), b); return err }, goldenID[:]},
		"segment": {appendSegmentRecord(nil, key, segment), func(k, b []byte) error { _, err := parseSegmentRecord(k, b); return err }, key},
		"use":     {appendUseRecord(nil, goldenID, use), func(k, b []byte) error { _, err := parseUseRecord(content.Identity(k), b); return err }, goldenID[:]},
	} {
		if err := c.parse(c.key, c.record); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for bit := range 8 * len(c.record) {
			b := bytes.Clone(c.record)
			b[bit/8] ^= 1 << (bit % 8)
			if err := c.parse(c.key, b); !errors.Is(err, ErrRecord) {
				t.Fatalf("%s: bit %d flipped gave %v", name, bit, err)
			}
		}
		for n := range c.record {
			if err := c.parse(c.key, c.record[:n]); !errors.Is(err, ErrRecord) {
				t.Fatalf("%s: cut to %d bytes gave %v", name, n, err)
			}
		}
		other := bytes.Clone(c.key)
		other[3] ^= 1
		if err := c.parse(other, c.record); !errors.Is(err, ErrRecord) {
			t.Errorf("%s under another key gave %v", name, err)
		}
	}
}

func FuzzObjectRecord(f *testing.F) {
	object, _, _ := goldenRecords()
	f.Add(goldenID[:], appendObjectRecord(nil, goldenID, object), false)
	f.Fuzz(func(t *testing.T, key, b []byte, sealed bool) {
		var id content.Identity
		copy(id[:], key)
		b = reseal(id[:], b, sealed)
		r, err := parseObjectRecord(id, b)
		if err == nil && !bytes.Equal(appendObjectRecord(nil, id, r), b) {
			t.Errorf("%+v is not what was parsed", r)
		}
	})
}

func FuzzSegmentRecord(f *testing.F) {
	_, segment, _ := goldenRecords()
	key := segmentKey(goldenID, 7)
	f.Add(key, appendSegmentRecord(nil, key, segment), false)
	f.Fuzz(func(t *testing.T, key, b []byte, sealed bool) {
		b = reseal(key, b, sealed)
		r, err := parseSegmentRecord(key, b)
		if err == nil && !bytes.Equal(appendSegmentRecord(nil, key, r), b) {
			t.Errorf("%+v is not what was parsed", r)
		}
	})
}

func FuzzUseRecord(f *testing.F) {
	_, _, use := goldenRecords()
	f.Add(goldenID[:], appendUseRecord(nil, goldenID, use), false)
	f.Fuzz(func(t *testing.T, key, b []byte, sealed bool) {
		var id content.Identity
		copy(id[:], key)
		b = reseal(id[:], b, sealed)
		r, err := parseUseRecord(id, b)
		if err == nil && !reflect.DeepEqual(appendUseRecord(nil, id, r), b) {
			t.Errorf("%+v is not what was parsed", r)
		}
	})
}

// reseal makes the seal right, so that the fuzzer comes past it.
func reseal(key, b []byte, sealed bool) []byte {
	if !sealed || len(b) < 4 {
		return b
	}
	return appendSeal(bytes.Clone(b[:len(b)-4]), 0, key)
}
