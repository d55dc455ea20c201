package dataset

import (
	"fmt"
	"hash/crc64"
	"runtime"
	"strings"

	"golang.org/x/sync/errgroup"
)

// Big returns the set called name of count made files of size bytes, called 0.bin and so on.
func Big(name string, seed uint64, count int, size int64) *Manifest {
	m := &Manifest{Name: name, Seed: seed}
	for i := range count {
		m.Files = append(m.Files, File{Name: fmt.Sprintf("%d.bin", i), Size: size})
	}
	return m
}

// Repeated returns the set called name of one file of size bytes whose content repeats after
// period bytes: a large object that can be made by copying parts of a small one.
func Repeated(name string, seed uint64, size, period int64) *Manifest {
	return &Manifest{Name: name, Seed: seed, Files: []File{{Name: "0.bin", Size: size, Period: period}}}
}

// Small returns the set called name of count made files of size bytes in directories of
// perDirectory files, as image data sets come.
func Small(name string, seed uint64, count int, size int64, perDirectory int) *Manifest {
	m := &Manifest{Name: name, Seed: seed, Files: make([]File, count)}
	for i := range m.Files {
		m.Files[i] = File{Name: fmt.Sprintf("class%03d/%07d.bin", i/perDirectory, i), Size: size}
	}
	return m
}

// Deep returns the set called name of count made files of size bytes in one directory,
// which has levels-1 others above it.
func Deep(name string, seed uint64, count int, size int64, levels int) *Manifest {
	m := &Manifest{Name: name, Seed: seed, Files: make([]File, count)}
	dir := strings.Repeat("level/", levels)
	for i := range m.Files {
		m.Files[i] = File{Name: fmt.Sprintf("%s%03d.bin", dir, i), Size: size}
	}
	return m
}

// AddSums works out the checksums of all files of a made set, on all
// processors. A file whose content repeats is made only once a period, which
// must then be a multiple of SumSize.
func (m *Manifest) AddSums() error {
	if m.Seed == 0 {
		return fmt.Errorf("sum set %q: its content cannot be made", m.Name)
	}
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i := range m.Files {
		g.Go(func() error { return m.addSums(&m.Files[i]) })
	}
	return g.Wait()
}

func (m *Manifest) addSums(f *File) error {
	if f.Period%SumSize != 0 {
		return fmt.Errorf("sum %q: its period %d is not a multiple of %d", f.Name, f.Period, SumSize)
	}
	content, _ := m.Content(f)
	buf := make([]byte, min(SumSize, f.Size))
	f.Sums = make([]uint32, 0, (f.Size+SumSize-1)/SumSize)
	f.CRC64 = 0
	for offset := int64(0); offset < f.Size; offset += SumSize {
		if f.Period > 0 && offset >= f.Period && f.Size-offset >= SumSize {
			f.Sums = append(f.Sums, f.Sums[(offset%f.Period)/SumSize])
			continue
		}
		p := buf[:min(SumSize, f.Size-offset)]
		content.Fill(p, offset)
		f.Sums = append(f.Sums, Sum(p))
		if f.Period == 0 {
			f.CRC64 = crc64.Update(f.CRC64, ecma, p)
		}
	}
	return nil
}

var ecma = crc64.MakeTable(crc64.ECMA)
