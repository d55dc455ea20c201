package suite

import (
	"bufio"
	"bytes"
	"context"
	"crypto/md5" //nolint:gosec // inventories are checked with it
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/pailfs/pailfs/bench/bare"
	"github.com/pailfs/pailfs/bench/machine"
	"github.com/pailfs/pailfs/bench/result"
	"github.com/pailfs/pailfs/bench/rig"
)

// writeKeys writes n keys of a space below its name, a key a line. flat is one
// directory of numbered files. skewed has 98 of 100 in one deep directory and the
// rest spread over 2,000 directories before and after it.
func writeKeys(w io.Writer, space string, n int) error {
	out := bufio.NewWriter(w)
	for i := range n {
		switch {
		case space == "flat":
			fmt.Fprintf(out, "flat/%08d.jpg\n", i)
		case i%100 == 0:
			fmt.Fprintf(out, "skewed/a/%03x/%07d\n", i/100%1000, i)
		case i%100 == 1:
			fmt.Fprintf(out, "skewed/z/%03x/%07d\n", i/100%1000, i)
		default:
			fmt.Fprintf(out, "skewed/m/one/folder/with/most/of/them/image-%08d.jpeg\n", i)
		}
	}
	return out.Flush()
}

// builtManifest is what `pailfs manifest build --json` says.
type builtManifest struct {
	Objects    int64 `json:"objects"`
	Duplicates int64 `json:"duplicates"`
	FileBytes  int64 `json:"file_bytes"`
}

// buildManifest runs `pailfs manifest build` of a prefix of the server's bucket,
// without publishing, and checks that it holds want objects, each once.
func (r *Runner) buildManifest(ctx context.Context, s *rig.Server, prefix string, want int, flags ...string) (rig.Ran, builtManifest, error) {
	bucket := s.Bucket()
	work, err := os.MkdirTemp(r.cfg.Work, "manifest-")
	if err != nil {
		return rig.Ran{}, builtManifest{}, fmt.Errorf("make a place for the manifest: %w", err)
	}
	args := append([]string{
		"manifest", "build", "oss://" + bucket.Bucket + "/" + prefix, "--endpoint", bucket.Endpoint, "--json",
		"--no-publish", "--output", filepath.Join(work, "manifest"), "--state", filepath.Join(work, "state"),
	}, flags...)
	ran, err := rig.RunCommand(ctx, s.Environment(), nil, filepath.Join(r.cfg.Programs, "pailfs"), args...)
	var built builtManifest
	if err == nil {
		err = json.Unmarshal([]byte(ran.Stdout), &built)
	}
	if err == nil && (built.Objects != int64(want) || built.Duplicates != 0) {
		err = fmt.Errorf("the manifest holds %d objects, %d twice, and the bucket %d", built.Objects, built.Duplicates, want)
	}
	return ran, built, errors.Join(err, os.RemoveAll(work))
}

// namesServer starts a server of its own over Work/names.
func (r *Runner) namesServer(ctx context.Context, link rig.Link) (*rig.Server, error) {
	return rig.StartServer(ctx, rig.ServerConfig{
		Programs: r.cfg.Programs, Dir: filepath.Join(r.cfg.Work, "names"),
		Log: filepath.Join(r.cfg.Work, "names.log"), Bucket: "names", Link: link,
	})
}

// sampleOf describes one run of a program.
func sampleOf(ran rig.Ran, value float64, objects int) result.Sample {
	return result.Sample{Value: value, Seconds: ran.Took.Seconds(), Ops: int64(objects), DaemonCPU: ran.CPU.Seconds(), DaemonPeak: ran.PeakBytes}
}

// listingOf is the goal of a manifest of a key space by listing, against one listing
// after the other.
func listingOf(space string) Goal {
	return Goal{
		Name: "manifest-list-" + space, Work: "a manifest of a million objects by listing, " + space + " keys",
		Take: func(ctx context.Context, r *Runner) (Taken, error) { return takeListing(ctx, r, space) },
	}
}

func takeListing(ctx context.Context, r *Runner, space string) (taken Taken, err error) {
	n := r.cfg.Sizes.Names
	dir := filepath.Join(r.cfg.Work, "names")
	r.cfg.Say("storing %d objects", n)
	keys, write := io.Pipe()
	go func() { write.CloseWithError(writeKeys(write, space, n)) }()
	err = rig.Fill(ctx, r.cfg.Programs, dir, "names", keys)
	_ = keys.Close() // ends the writer if the reader has failed
	if err != nil {
		return Taken{}, err
	}
	link := rig.Link{Profile: "seed"}
	server, err := r.namesServer(ctx, link)
	if err != nil {
		return Taken{}, err
	}
	defer func() { err = errors.Join(err, server.Stop(), os.RemoveAll(dir)) }()
	t, series, err := r.compareListing(ctx, server, space, link)
	if err != nil {
		return Taken{}, err
	}
	return Taken{Targets: []result.Target{t}, Series: series}, nil
}

// compareListing measures one key space. The listing in turn is taken once: it
// takes minutes, all of them the server's.
func (r *Runner) compareListing(ctx context.Context, server *rig.Server, space string, link rig.Link) (result.Target, []result.Series, error) {
	n := r.cfg.Sizes.Names
	t := result.Target{
		Name: "manifest-list-" + space, Work: fmt.Sprintf("manifest of %d objects by listing, %s keys, profile seed", n, space),
		Against: "one bare listing", Want: 8,
	}
	workload := "manifest/list-" + space
	fail := func(err error) (result.Target, []result.Series, error) {
		return t, nil, fmt.Errorf("measure %s: %w", workload, err)
	}
	in := result.Series{Workload: workload, Client: "bare, in turn", Link: link.String(), Metric: result.ObjectsPerSecond}
	client, err := bare.Open(server.Bucket())
	if err != nil {
		return fail(err)
	}
	defer client.Close()
	listed := 0
	began := time.Now()
	if err := client.List(ctx, space+"/", func(bare.Listed) error { listed++; return nil }); err != nil {
		return fail(err)
	}
	reference := time.Since(began)
	if listed != n {
		return fail(fmt.Errorf("the bare listing has %d objects of %d", listed, n))
	}
	in.Samples = []result.Sample{sampleOf(rig.Ran{Took: reference}, float64(n)/reference.Seconds(), n)}
	in.Value = in.Samples[0].Value
	r.cfg.Say("  %-24s %-16s %s", workload, in.Client, in.Show())

	pailfs := result.Series{Workload: workload, Client: "pailfs", Link: link.String(), Metric: result.ObjectsPerSecond}
	t.Least, t.Most = math.Inf(1), math.Inf(-1)
	var share []float64
	for range r.cfg.Runs {
		before, err := machine.CPUTime(server.PID())
		if err != nil {
			return fail(err)
		}
		ran, _, err := r.buildManifest(ctx, server, space, n)
		if err != nil {
			return fail(err)
		}
		after, err := machine.CPUTime(server.PID())
		if err != nil {
			return fail(err)
		}
		s := sampleOf(ran, float64(n)/ran.Took.Seconds(), n)
		s.ServerShare = min(1, (after-before).Seconds()/(s.Seconds*float64(processors())))
		share = append(share, s.ServerShare)
		pailfs.Samples = append(pailfs.Samples, s)
		ratio := reference.Seconds() / ran.Took.Seconds()
		t.Least, t.Most = min(t.Least, ratio), max(t.Most, ratio)
		r.cfg.Say("  %-24s %-16s %s", workload, pailfs.Client, result.ShowValue(s.Value, pailfs.Metric))
	}
	pailfs.Value = result.Median(pailfs.Values())
	t.Measured = pailfs.Value / in.Value
	t.Subject, t.Reference = pailfs.Show(), in.Show()
	// A server that is busy makes the ratio smaller, not larger: no reason to refuse it.
	t.Notes = append(t.Notes, fmt.Sprintf("the server used %.0f %% of the machine beside pailfs", 100*result.Median(share)))
	return t, []result.Series{pailfs, in}, nil
}

// rowsPerFile is how many rows a file of the made inventory has.
const rowsPerFile = 500_000

// takeInventory builds a manifest from an inventory of many objects.
func takeInventory(ctx context.Context, r *Runner) (taken Taken, err error) {
	n := r.cfg.Sizes.InventoryRows
	server, err := r.namesServer(ctx, rig.Link{})
	if err != nil {
		return Taken{}, err
	}
	defer func() {
		err = errors.Join(err, server.Stop(), os.RemoveAll(filepath.Join(r.cfg.Work, "names")))
	}()
	r.cfg.Say("storing an inventory of %d objects", n)
	key, err := storeInventory(ctx, server, n)
	if err != nil {
		return Taken{}, err
	}
	series := result.Series{Workload: "manifest/inventory", Client: "pailfs", Link: "none", Metric: result.ObjectsPerSecond}
	t := result.Target{
		Name: "manifest-inventory", Work: fmt.Sprintf("manifest of %d objects from an inventory", n), Against: "the clock",
		Want: 500_000, Unit: "objects/s", Reference: "–", Least: math.Inf(1), Most: math.Inf(-1),
	}
	var peak, file int64
	for range r.cfg.Runs {
		ran, built, err := r.buildManifest(ctx, server, "", n, "--from-inventory", "oss://"+server.Bucket().Bucket+"/"+key)
		if err != nil {
			return Taken{}, fmt.Errorf("measure manifest/inventory: %w", err)
		}
		s := sampleOf(ran, float64(n)/ran.Took.Seconds(), n)
		series.Samples = append(series.Samples, s)
		t.Least, t.Most = min(t.Least, s.Value), max(t.Most, s.Value)
		peak, file = max(peak, ran.PeakBytes), built.FileBytes
		r.cfg.Say("  %-24s %-16s %s, peak %s", series.Workload, series.Client, result.ShowValue(s.Value, series.Metric),
			result.ShowValue(float64(ran.PeakBytes), result.ResidentBytes))
	}
	series.Value = result.Median(series.Values())
	t.Measured = series.Value
	t.Subject = fmt.Sprintf("%s, peak %s", series.Show(), result.ShowValue(float64(peak), result.ResidentBytes))
	t.Notes = append(t.Notes, fmt.Sprintf("the manifest has %.1f bytes an object", float64(file)/float64(n)))
	return Taken{Targets: []result.Target{t}, Series: []result.Series{series}}, nil
}

// storeInventory stores an inventory of n objects as OSS writes it, a thousand
// objects to a directory, in no order, and returns the key of its manifest.json.
func storeInventory(ctx context.Context, server *rig.Server, n int) (string, error) {
	client, err := bare.Open(server.Bucket())
	if err != nil {
		return "", err
	}
	defer client.Close()
	type file struct {
		Key  string `json:"key"`
		MD5  string `json:"MD5checksum"`
		Size int    `json:"size"`
	}
	bucket := server.Bucket().Bucket
	list := struct {
		Created string `json:"creationTimestamp"`
		Format  string `json:"fileFormat"`
		Schema  string `json:"fileSchema"`
		Source  string `json:"sourceBucket"`
		Version string `json:"version"`
		Files   []file `json:"files"`
	}{"1763596800", "CSV", "Bucket, Key, Size, StorageClass, LastModifiedDate, ETag, IsMultipartUploaded, EncryptionStatus", bucket, "2019-09-01", nil}
	var zipped bytes.Buffer
	var row []byte
	z, err := gzip.NewWriterLevel(&zipped, gzip.BestSpeed)
	if err != nil {
		return "", err
	}
	for from := 0; from < n; from += rowsPerFile {
		zipped.Reset()
		z.Reset(&zipped)
		for i := from; i < min(n, from+rowsPerFile); i++ {
			// A step that has no factor in common with n visits every number once.
			number := int(uint64(i) * 7_919_999 % uint64(n))
			row = appendRow(row[:0], bucket, number)
			if _, err := z.Write(row); err != nil {
				return "", err
			}
		}
		if err := z.Close(); err != nil {
			return "", err
		}
		f := file{Key: fmt.Sprintf("inventory/data/%04d.csv.gz", from/rowsPerFile), Size: zipped.Len(), MD5: fmt.Sprintf("%X", md5.Sum(zipped.Bytes()))} //nolint:gosec // as above
		if _, err := client.Put(ctx, f.Key, zipped.Bytes()); err != nil {
			return "", err
		}
		list.Files = append(list.Files, f)
	}
	text, err := json.Marshal(list)
	if err != nil {
		return "", err
	}
	const key = "inventory/manifest.json"
	_, err = client.Put(ctx, key, text)
	return key, err
}

// appendRow appends a row of an inventory. It is written by hand: ten million of
// them take fmt a minute.
func appendRow(b []byte, bucket string, number int) []byte {
	pad := func(n, digits int) {
		at := len(b)
		for range digits {
			b = append(b, '0')
		}
		for i := len(b) - 1; i >= at; i-- {
			b[i] = byte('0' + n%10)
			n /= 10
		}
	}
	b = append(append(append(b, '"'), bucket...), `","train/`...)
	pad(number/1000, 5)
	b = append(b, `/image%2B`...)
	pad(number, 8)
	b = strconv.AppendInt(append(b, `.jpg","`...), int64(100_000+number%50_000), 10)
	b = append(b, `","Standard","2026-11-`...)
	pad(1+number%20, 2)
	b = append(b, 'T')
	pad(number%24, 2)
	b = append(b, ':')
	pad(number/24%60, 2)
	b = append(b, ':')
	pad(number/1440%60, 2)
	b = append(b, `.000Z","`...)
	for _, x := range []uint64{mix(uint64(number)), mix(^uint64(number))} {
		for shift := 60; shift >= 0; shift -= 4 {
			b = append(b, "0123456789ABCDEF"[x>>shift&15])
		}
	}
	return append(b, "\",\"false\",\"false\"\n"...)
}

// mix makes digits that do not compress of a number.
func mix(x uint64) uint64 {
	x = (x ^ x>>31) * 0x7fb5d329728ea185
	x = (x ^ x>>27) * 0x81dadef4bc2dd44d
	return x ^ x>>33
}
