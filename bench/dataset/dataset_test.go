package dataset

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"hash/crc64"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestContentIsTheSameFromAnyOffset(t *testing.T) {
	content := NewContent(7, "big/0", 0)
	whole := make([]byte, 10*PageSize+123)
	content.Fill(whole, 0)
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		from := random.IntN(len(whole))
		to := from + random.IntN(len(whole)-from) + 1
		part := make([]byte, to-from)
		content.Fill(part, int64(from))
		if !bytes.Equal(part, whole[from:to]) {
			t.Fatalf("bytes %d to %d differ when made alone", from, to)
		}
		if err := content.Check(part, int64(from)); err != nil {
			t.Fatal(err)
		}
		if err := content.CheckStamps(part, int64(from)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestContentDiffersBetweenFilesSeedsAndPages(t *testing.T) {
	seen := map[uint64]string{}
	for _, seed := range []uint64{1, 2} {
		for _, name := range []string{"a", "b"} {
			content := NewContent(seed, name, 0)
			for page := range int64(1000) {
				var p [8]byte
				content.Fill(p[:], page*PageSize)
				stamp := binary.LittleEndian.Uint64(p[:])
				if other, ok := seen[stamp]; ok {
					t.Fatalf("stamp of page %d of %q is that of %s", page, name, other)
				}
				seen[stamp] = name
			}
		}
	}
}

func TestCheckNoticesAnyWrongByte(t *testing.T) {
	content := NewContent(7, "f", 0)
	p := make([]byte, 3*PageSize)
	content.Fill(p, PageSize)
	for _, i := range []int{0, 1, PageSize - 1, PageSize, len(p) - 1} {
		p[i] ^= 1
		if content.Check(p, PageSize) == nil {
			t.Errorf("wrong byte %d was not noticed", i)
		}
		p[i] ^= 1
	}
	if content.Check(p, 0) == nil || content.CheckStamps(p, 0) == nil {
		t.Error("bytes of another offset were not noticed")
	}
	if NewContent(7, "g", 0).CheckStamps(p, PageSize) == nil {
		t.Error("bytes of another file were not noticed")
	}
}

func TestContentRepeatsAfterPeriod(t *testing.T) {
	content := NewContent(7, "f", 4*PageSize)
	a, b := make([]byte, 4*PageSize), make([]byte, 4*PageSize)
	content.Fill(a, 0)
	content.Fill(b, 8*PageSize)
	if !bytes.Equal(a, b) {
		t.Error("the third period differs from the first")
	}
	if bytes.Equal(a[:PageSize], a[PageSize:2*PageSize]) {
		t.Error("pages within a period are equal")
	}
}

func TestSumsCoverEveryByte(t *testing.T) {
	m := Big("big", 3, 1, 2*SumSize+777)
	if err := m.AddSums(); err != nil {
		t.Fatal(err)
	}
	f := &m.Files[0]
	content, ok := m.Content(f)
	if !ok {
		t.Fatal("a made set has no content")
	}
	whole := make([]byte, f.Size)
	content.Fill(whole, 0)
	if got := crc64.Checksum(whole, ecma); got != f.CRC64 {
		t.Errorf("CRC64 %x, want %x", f.CRC64, got)
	}
	for _, offset := range []int64{0, SumSize, 2 * SumSize} {
		if err := f.CheckSums(whole[offset:], offset); err != nil {
			t.Error(err)
		}
	}
	whole[len(whole)-1] ^= 0x80
	if f.CheckSums(whole, 0) == nil {
		t.Error("a wrong last byte was not noticed")
	}
	if f.CheckSums(whole[:100], 0) == nil {
		t.Error("a part that ends within a checksum was accepted")
	}
	if f.CheckSums(whole[1:], 1) == nil {
		t.Error("an offset within a checksum was accepted")
	}
}

func TestSumsOfRepeatedContent(t *testing.T) {
	m := Repeated("repeated", 3, 5*SumSize+99, 2*SumSize)
	if err := m.AddSums(); err != nil {
		t.Fatal(err)
	}
	f := &m.Files[0]
	content, _ := m.Content(f)
	whole := make([]byte, f.Size)
	content.Fill(whole, 0)
	if err := f.CheckSums(whole, 0); err != nil {
		t.Error(err)
	}
}

func TestManifestSurvivesItsFile(t *testing.T) {
	m := Small("small", 3, 25, 1000, 10)
	if err := m.AddSums(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "m.json")
	if err := m.Save(path); err != nil {
		t.Fatal(err)
	}
	got, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(m, got); diff != "" {
		t.Errorf("manifest changed (-saved +loaded):\n%s", diff)
	}
	if got.Bytes() != 25000 || got.Files[24].Name != "class002/0000024.bin" {
		t.Errorf("the set is %d bytes, its last file %q", got.Bytes(), got.Files[24].Name)
	}
}

func TestFashionUnpacksImagesByLabel(t *testing.T) {
	dir := t.TempDir()
	writeIDX(t, filepath.Join(dir, "train-images-idx3-ubyte.gz"), []uint32{2, 2, 3}, []byte("abcdefghijkl"))
	writeIDX(t, filepath.Join(dir, "train-labels-idx1-ubyte.gz"), []uint32{2}, []byte{9, 0})
	writeIDX(t, filepath.Join(dir, "t10k-images-idx3-ubyte.gz"), []uint32{1, 2, 3}, []byte("mnopqr"))
	writeIDX(t, filepath.Join(dir, "t10k-labels-idx1-ubyte.gz"), []uint32{1}, []byte{7})
	var got []Image
	err := Fashion(dir, func(image Image) error {
		got = append(got, image)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []Image{
		{"train/ankle-boot/00000.pgm", []byte("P5\n3 2\n255\nabcdef")},
		{"train/t-shirt-top/00001.pgm", []byte("P5\n3 2\n255\nghijkl")},
		{"test/sneaker/00000.pgm", []byte("P5\n3 2\n255\nmnopqr")},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("images differ (-want +got):\n%s", diff)
	}
}

func TestFashionRefusesBrokenFiles(t *testing.T) {
	for name, labels := range map[string][]byte{"label out of range": {9, 10}, "too few labels": {9}} {
		dir := t.TempDir()
		writeIDX(t, filepath.Join(dir, "train-images-idx3-ubyte.gz"), []uint32{2, 1, 1}, []byte("ab"))
		writeIDX(t, filepath.Join(dir, "train-labels-idx1-ubyte.gz"), []uint32{2}, labels)
		if err := Fashion(dir, func(Image) error { return nil }); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := Fashion(t.TempDir(), func(Image) error { return nil }); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing files: %v", err)
	}
}

func writeIDX(t *testing.T, path string, dims []uint32, data []byte) {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	header := []byte{0, 0, 8, byte(len(dims))}
	for _, n := range dims {
		header = binary.BigEndian.AppendUint32(header, n)
	}
	for _, p := range [][]byte{header, data} {
		if _, err := z.Write(p); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

func BenchmarkContent(b *testing.B) {
	content := NewContent(1, "f", 0)
	p := make([]byte, 1<<20)
	b.Run("op=fill", func(b *testing.B) {
		b.SetBytes(int64(len(p)))
		for b.Loop() {
			content.Fill(p, 0)
		}
	})
	b.Run("op=stamps", func(b *testing.B) {
		b.SetBytes(int64(len(p)))
		for b.Loop() {
			if err := content.CheckStamps(p, 0); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("op=sum", func(b *testing.B) {
		b.SetBytes(int64(len(p)))
		for b.Loop() {
			Sum(p)
		}
	})
}
