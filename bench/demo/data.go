package demo

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/pailfs/pailfs/bench/bare"
	"github.com/pailfs/pailfs/bench/dataset"
)

// data is what is loaded and read: both sets, and where their bytes come from.
type data struct {
	images *dataset.Manifest
	packed *dataset.Manifest
	// files are the images' bytes, as images.Files.
	files [][]byte
	// pixels are the images without headers, one after another.
	pixels []byte
	// pixelSize is the length of one image in pixels.
	pixelSize int
	// order is the order of the images in each epoch of the packed file.
	order [][]int
}

// packedName is the large file. imagesDir is where the images lie.
const (
	packedName = "packed/epochs.bin"
	imagesDir  = "images/"
)

// loadData reads Fashion-MNIST from dir: images of them, at most, as single
// files, and a packed file of packedBytes.
//
// The packed file is what a preprocessing step writes for training: the pixels
// of all images, shuffled anew for every epoch, epoch after epoch.
func loadData(dir string, images int, packedBytes int64) (*data, error) {
	d := &data{images: &dataset.Manifest{Name: "images"}}
	enough := errors.New("enough")
	err := dataset.Fashion(dir, func(image dataset.Image) error {
		if len(d.files) == images {
			return enough
		}
		d.images.Files = append(d.images.Files, dataset.File{
			Name: imagesDir + image.Name, Size: int64(len(image.PGM)), Sums: []uint32{dataset.Sum(image.PGM)},
		})
		d.files = append(d.files, image.PGM)
		header := bytes.LastIndex(image.PGM[:min(32, len(image.PGM))], []byte("255\n")) + 4
		d.pixels = append(d.pixels, image.PGM[header:]...)
		d.pixelSize = len(image.PGM) - header
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: install the Debian package dataset-fashion-mnist (make deps does), or say --data", err)
	}
	if err != nil && !errors.Is(err, enough) {
		return nil, err
	}
	epochs := int(packedBytes/int64(len(d.pixels))) + 1
	for epoch := range epochs {
		d.order = append(d.order, rand.New(rand.NewPCG(uint64(epoch), 1)).Perm(len(d.files)))
	}
	d.packed = &dataset.Manifest{Name: "packed", Files: []dataset.File{{Name: packedName, Size: packedBytes}}}
	d.sumPacked()
	return d, nil
}

// fillPacked makes the bytes of the packed file that begin at offset.
func (d *data) fillPacked(p []byte, offset int64) {
	epochBytes := int64(len(d.pixels))
	for len(p) > 0 {
		order := d.order[offset/epochBytes]
		within := int(offset % epochBytes)
		image := order[within/d.pixelSize] * d.pixelSize
		n := copy(p, d.pixels[image+within%d.pixelSize:image+d.pixelSize])
		p, offset = p[n:], offset+int64(n)
	}
}

// sumPacked works out the checksums of the packed file.
func (d *data) sumPacked() {
	f := &d.packed.Files[0]
	f.Sums = make([]uint32, (f.Size+dataset.SumSize-1)/dataset.SumSize)
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	const piece = 64
	for from := 0; from < len(f.Sums); from += piece {
		g.Go(func() error {
			buf := make([]byte, dataset.SumSize)
			for i := from; i < min(from+piece, len(f.Sums)); i++ {
				offset := int64(i) * dataset.SumSize
				p := buf[:min(dataset.SumSize, f.Size-offset)]
				d.fillPacked(p, offset)
				f.Sums[i] = dataset.Sum(p)
			}
			return nil
		})
	}
	_ = g.Wait() // none of them fails
}

// objects are all objects of the bucket.
func (d *data) objects() []bare.Object {
	objects := []bare.Object{{
		Key: packedName, Size: d.packed.Files[0].Size,
		Fill: func(p []byte, offset int64) error {
			d.fillPacked(p, offset)
			return nil
		},
	}}
	for i := range d.images.Files {
		f := &d.images.Files[i]
		objects = append(objects, bare.Object{Key: f.Name, Size: f.Size, Fill: func(p []byte, offset int64) error {
			copy(p, d.files[i][offset:])
			return nil
		}})
	}
	return objects
}

// bytes is the size of everything.
func (d *data) bytes() int64 { return d.images.Bytes() + d.packed.Bytes() }
