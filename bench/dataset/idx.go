package dataset

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// FashionDir is where Debian's package dataset-fashion-mnist puts its files.
const FashionDir = "/usr/share/datasets/fashion-mnist"

// FashionClasses are the ten labels of Fashion-MNIST, as its authors name them.
var FashionClasses = [...]string{
	"t-shirt-top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle-boot",
}

// Image is one picture of Fashion-MNIST as a file.
type Image struct {
	// Name is such as train/sneaker/00042.pgm.
	Name string
	// PGM is the picture in the portable graymap format.
	PGM []byte
}

// Fashion yields all 70,000 images in the order of the original files, those
// for training first, until yield returns an error.
func Fashion(dir string, yield func(Image) error) error {
	for _, part := range []struct{ name, images, labels string }{
		{"train", "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"},
		{"test", "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"},
	} {
		if err := fashionPart(dir, part.name, part.images, part.labels, yield); err != nil {
			return err
		}
	}
	return nil
}

func fashionPart(dir, part, imagesName, labelsName string, yield func(Image) error) error {
	images, err := openIDX(filepath.Join(dir, imagesName), 3)
	if err != nil {
		return err
	}
	defer images.Close()
	labels, err := openIDX(filepath.Join(dir, labelsName), 1)
	if err != nil {
		return err
	}
	defer labels.Close()
	if images.dims[0] != labels.dims[0] {
		return fmt.Errorf("read %q: %d images but %d labels", dir, images.dims[0], labels.dims[0])
	}
	rows, columns := images.dims[1], images.dims[2]
	header := fmt.Sprintf("P5\n%d %d\n255\n", columns, rows)
	for i := range images.dims[0] {
		label, err := labels.r.ReadByte()
		if err != nil {
			return fmt.Errorf("read label %d of %q: %w", i, labelsName, err)
		}
		if int(label) >= len(FashionClasses) {
			return fmt.Errorf("read label %d of %q: there is no class %d", i, labelsName, label)
		}
		pgm := make([]byte, len(header)+rows*columns)
		copy(pgm, header)
		if _, err := io.ReadFull(images.r, pgm[len(header):]); err != nil {
			return fmt.Errorf("read image %d of %q: %w", i, imagesName, err)
		}
		image := Image{Name: fmt.Sprintf("%s/%s/%05d.pgm", part, FashionClasses[label], i), PGM: pgm}
		if err := yield(image); err != nil {
			return err
		}
	}
	return nil
}

// idxFile is an open file in the IDX format of the MNIST family: two zero
// bytes, the element type (8 is unsigned byte), the number of dimensions, each
// dimension as a big-endian 32-bit number, then the elements.
type idxFile struct {
	file *os.File
	r    *bufio.Reader
	dims []int
}

func openIDX(path string, dimensions int) (_ *idxFile, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open data set: %w", err)
	}
	defer func() {
		if err != nil {
			_ = file.Close() // it was only read
		}
	}()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		return nil, fmt.Errorf("unpack %q: %w", path, err)
	}
	r := bufio.NewReaderSize(unzipped, 1<<16)
	dims, err := readIDXHeader(r, dimensions)
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", path, err)
	}
	return &idxFile{file: file, r: r, dims: dims}, nil
}

func (f *idxFile) Close() error { return f.file.Close() }

func readIDXHeader(r io.Reader, dimensions int) ([]int, error) {
	header := make([]byte, 4+4*dimensions)
	if _, err := io.ReadFull(r, header); err != nil {
		return nil, fmt.Errorf("read header: %w", err)
	}
	if header[0] != 0 || header[1] != 0 || header[2] != 8 || int(header[3]) != dimensions {
		return nil, fmt.Errorf("header % x is not that of %d-dimensional bytes", header[:4], dimensions)
	}
	dims := make([]int, dimensions)
	for i := range dims {
		n := binary.BigEndian.Uint32(header[4+4*i:])
		if n == 0 || n > 1<<24 {
			return nil, errors.New("a dimension makes no sense")
		}
		dims[i] = int(n)
	}
	return dims, nil
}
