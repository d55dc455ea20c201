package build

import (
	"context"
	"crypto/md5" //nolint:gosec // it is what inventories are checked with
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pailfs/pailfs/oss"
)

// Inventory reads a bucket inventory of OSS: CSV files that the service writes
// once a day or week. Nothing of the bucket itself is listed.
type Inventory struct {
	bucket   Bucket
	name     string
	key      string
	list     inventoryList
	columns  columns
	complete time.Time
}

var _ Source = (*Inventory)(nil)

// inventoryList is manifest.json.
type inventoryList struct {
	CreationTimestamp string `json:"creationTimestamp"`
	FileFormat        string `json:"fileFormat"`
	FileSchema        string `json:"fileSchema"`
	SourceBucket      string `json:"sourceBucket"`
	StartTimestamp    string `json:"startTimestamp"`
	Files             []struct {
		Key  string `json:"key"`
		MD5  string `json:"MD5checksum"`
		Size int64  `json:"size"`
	} `json:"files"`
}

// maxInventoryList is more than manifest.json of a hundred thousand files needs.
const maxInventoryList = 64 << 20

// OpenInventory reads the manifest.json at key of the bucket called name, which may
// be another one than the bucket that it tells of, and checks it. source is the
// bucket that it must tell of.
func OpenInventory(ctx context.Context, bucket Bucket, name, key, source string) (*Inventory, error) {
	v := &Inventory{bucket: bucket, name: name, key: key}
	if err := v.open(ctx, source); err != nil {
		return nil, fmt.Errorf("inventory oss://%s/%s: %w", name, key, err)
	}
	return v, nil
}

func (v *Inventory) open(ctx context.Context, source string) error {
	text, info, err := readSmall(ctx, v.bucket, v.key, maxInventoryList)
	if err != nil {
		return err
	}
	v.complete = info.ModTime
	if err := v.checkSum(ctx, text); err != nil {
		return err
	}
	if err := json.Unmarshal(text, &v.list); err != nil {
		return fmt.Errorf("it is no JSON (%w): name the manifest.json of an inventory", err)
	}
	if v.list.StartTimestamp != "" {
		return errors.New("it is an incremental inventory, which tells of changes only: name the manifest.json of a full one")
	}
	if !strings.EqualFold(v.list.FileFormat, "CSV") {
		return fmt.Errorf("its files are %q, and only CSV is read: set the inventory's format to CSV", v.list.FileFormat)
	}
	if v.list.SourceBucket != source {
		return fmt.Errorf("it tells of the bucket %q, not of %q: name an inventory of that bucket", v.list.SourceBucket, source)
	}
	if v.columns, err = parseSchema(v.list.FileSchema); err != nil {
		return err
	}
	if _, err := v.created(); err != nil {
		return err
	}
	for i := range v.list.Files {
		f := &v.list.Files[i]
		if sum, err := hex.DecodeString(f.MD5); err != nil || len(sum) != md5.Size || f.Key == "" || f.Size < 0 {
			return fmt.Errorf("file %d of it (%q, %d bytes, MD5 %q) is not described fully: the inventory is damaged, use another", i+1, f.Key, f.Size, f.MD5)
		}
	}
	return nil
}

// checkSum compares manifest.json with manifest.checksum beside it, which old
// inventories lack.
func (v *Inventory) checkSum(ctx context.Context, text []byte) error {
	key := strings.TrimSuffix(v.key, ".json") + ".checksum"
	want, _, err := readSmall(ctx, v.bucket, key, 4096)
	if errors.Is(err, oss.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	have := md5.Sum(text) //nolint:gosec // as above
	if !strings.EqualFold(strings.TrimSpace(string(want)), hex.EncodeToString(have[:])) {
		return fmt.Errorf("its MD5 is %X, and %s says %s: it is damaged or half written, use another", have, key, strings.TrimSpace(string(want)))
	}
	return nil
}

// created is when the scan of the bucket began.
func (v *Inventory) created() (time.Time, error) {
	n, err := strconv.ParseInt(v.list.CreationTimestamp, 10, 64)
	if err != nil || n <= 0 {
		return time.Time{}, fmt.Errorf("its creationTimestamp %q is no time in seconds: the inventory is damaged, use another", v.list.CreationTimestamp)
	}
	return time.Unix(n, 0).UTC(), nil
}

func (v *Inventory) describe() string { return "inventory oss://" + v.name + "/" + v.key }

func (*Inventory) base(context.Context, *Build) error { return nil }

func (*Inventory) properties() map[string]string { return nil }

// period is from the beginning of the scan to when manifest.json, which is written
// last, was there.
func (v *Inventory) period() (began, ended time.Time) {
	began, _ = v.created() // checked when it was opened
	return began, v.complete
}

// read reads the files in parallel. A row that is done is skipped: the file is read
// again, its rows are not logged again.
func (v *Inventory) read(ctx context.Context, b *Build, done []cover) error {
	rows := map[string]uint64{}
	for _, c := range done {
		rows[c.unit] = max(rows[c.unit], c.to)
	}
	b.ofUnits.Store(int64(len(v.list.Files)))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0) + 1) // one more, to wait for the network
	for i := range v.list.Files {
		group.Go(func() error {
			if err := v.readFile(ctx, b, i, rows[v.list.Files[i].Key]); err != nil {
				return fmt.Errorf("inventory file oss://%s/%s: %w", v.name, v.list.Files[i].Key, err)
			}
			b.units.Add(1)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if b.objects.Load() == 0 {
		return fmt.Errorf("%s names no key below %q: check the prefix, and what the inventory's rule covers", v.describe(), b.cfg.Prefix)
	}
	return nil
}

// readFile fetches the i-th file, checks it and reads its rows from skip on.
func (v *Inventory) readFile(ctx context.Context, b *Build, i int, skip uint64) (err error) {
	if skip == wholeFile {
		return nil
	}
	f := &v.list.Files[i]
	path := b.state.path(spillDir) + "/inventory-" + strconv.Itoa(i)
	local, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, local.Close())
		os.Remove(path)
	}()
	info, err := v.bucket.Head(ctx, f.Key)
	if err != nil {
		return err
	}
	if info.Size != f.Size {
		return fmt.Errorf("it has %d bytes, and manifest.json says %d: the inventory is damaged, use another", info.Size, f.Size)
	}
	if err := download(ctx, v.bucket, info.Object, local); err != nil {
		return err
	}
	sum := md5.New() //nolint:gosec // as above
	if _, err := io.Copy(sum, local); err != nil {
		return err
	}
	if have := hex.EncodeToString(sum.Sum(nil)); !strings.EqualFold(have, f.MD5) {
		return fmt.Errorf("its MD5 is %s, and manifest.json says %s: the inventory is damaged, use another", strings.ToUpper(have), f.MD5)
	}
	if _, err := local.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return v.readRows(ctx, b, f.Key, local, skip)
}

// downloadPart is how much is asked for at once.
const downloadPart = 8 << 20

// download writes the content of object to f, from its start.
func download(ctx context.Context, bucket oss.RangeReader, object oss.Object, f *os.File) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for at := int64(0); at < object.Size; at += downloadPart {
		group.Go(func() error {
			part := make([]byte, min(downloadPart, object.Size-at))
			if _, err := bucket.ReadRange(ctx, oss.RangeRequest{Object: object, Offset: at, Buffer: part}); err != nil {
				return err
			}
			_, err := f.WriteAt(part, at)
			return err
		})
	}
	return group.Wait()
}

// readSmall reads a whole object of at most limit bytes.
func readSmall(ctx context.Context, bucket Bucket, key string, limit int64) ([]byte, oss.Info, error) {
	info, err := bucket.Head(ctx, key)
	if err != nil {
		return nil, oss.Info{}, err
	}
	if info.Size > limit {
		return nil, oss.Info{}, fmt.Errorf("%q has %d bytes, more than %d", key, info.Size, limit)
	}
	if info.Size == 0 {
		return nil, info, nil
	}
	text := make([]byte, info.Size)
	if _, err := bucket.ReadRange(ctx, oss.RangeRequest{Object: info.Object, Buffer: text}); err != nil {
		return nil, oss.Info{}, err
	}
	return text, info, nil
}
