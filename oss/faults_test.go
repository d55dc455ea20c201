package oss_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc64"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/oss/ossemu"
	"github.com/pailfs/pailfs/oss/ossemu/ossemutest"
)

// rounds returns n, or n times PAILFS_OSS_ROUNDS for a long run.
func rounds(t *testing.T, n int) int {
	text := os.Getenv("PAILFS_OSS_ROUNDS")
	if text == "" {
		return n
	}
	factor, err := strconv.Atoi(text)
	if err != nil || factor < 1 {
		t.Fatalf("PAILFS_OSS_ROUNDS is %q, want a number from 1", text)
	}
	return n * factor
}

// content returns n bytes that no shift or repetition hides an error in.
func content(n int, seed byte) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

// classified says whether err is of a kind that callers can tell.
func classified(err error) bool {
	for _, kind := range []error{
		oss.ErrNotFound, oss.ErrNoBucket, oss.ErrChanged, oss.ErrExists, oss.ErrAccessDenied, oss.ErrCorrupted, oss.ErrInvalid, oss.ErrUnavailable,
	} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// setFaults replaces the emulator's faults and clears them with the test.
func setFaults(t *testing.T, e *ossemutest.Emulator, faults ...ossemu.Fault) {
	t.Helper()
	if err := e.Server.SetFaults(faults); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Server.SetFaults(nil) })
}

// readFaults is every fault that a read can meet. mayFail says that an error is
// a right answer; otherwise the read must succeed.
var readFaults = map[string]struct {
	fault   ossemu.Fault
	mayFail bool
	// fresh makes the client connect anew after the fault was set.
	fresh bool
}{
	"InternalError":      {fault: ossemu.Fault{Kind: ossemu.FaultError, Code: "InternalError", Probability: 0.3}},
	"ServiceUnavailable": {fault: ossemu.Fault{Kind: ossemu.FaultError, Code: "ServiceUnavailable", Probability: 0.2}},
	"QpsLimitExceeded":   {fault: ossemu.Fault{Kind: ossemu.FaultError, Code: "QpsLimitExceeded", Probability: 0.2}},
	"bad gateway":        {fault: ossemu.Fault{Kind: ossemu.FaultError, Code: "BadGateway", Status: 502, Probability: 0.3}},
	"AccessDenied":       {fault: ossemu.Fault{Kind: ossemu.FaultError, Code: "AccessDenied", Probability: 0.3}, mayFail: true},
	"NoSuchKey":          {fault: ossemu.Fault{Kind: ossemu.FaultError, Code: "NoSuchKey", Probability: 0.3}, mayFail: true},
	"redirect":           {fault: ossemu.Fault{Kind: ossemu.FaultError, Code: "TemporaryRedirect", Status: 307, Probability: 0.3}, mayFail: true},
	"reset":              {fault: ossemu.Fault{Kind: ossemu.FaultReset, Probability: 0.3}},
	"reset in the body":  {fault: ossemu.Fault{Kind: ossemu.FaultResetBody, Probability: 0.5}},
	"reset at byte 1":    {fault: ossemu.Fault{Kind: ossemu.FaultResetBody, Bytes: 1, Probability: 0.3}},
	"truncated":          {fault: ossemu.Fault{Kind: ossemu.FaultTruncate, Probability: 0.5}},
	"stalled":            {fault: ossemu.Fault{Kind: ossemu.FaultStall, Delay: time.Minute, Every: 40, Count: 3}},
	"slow first byte":    {fault: ossemu.Fault{Kind: ossemu.FaultSlowFirstByte, Delay: time.Minute, Every: 40, Count: 3}},
	"paused first byte":  {fault: ossemu.Fault{Kind: ossemu.FaultSlowFirstByte, Delay: 30 * time.Millisecond, Probability: 0.3}},
	"wrong crc":          {fault: ossemu.Fault{Kind: ossemu.FaultWrongCRC, Probability: 0.3}},
	"wrong etag":         {fault: ossemu.Fault{Kind: ossemu.FaultWrongETag, Probability: 0.3}, mayFail: true},
	"corrupted":          {fault: ossemu.Fault{Kind: ossemu.FaultCorrupt, Probability: 0.3}},
	"lost reply":         {fault: ossemu.Fault{Kind: ossemu.FaultLostReply, Probability: 0.3}},
	"error after commit": {fault: ossemu.Fault{Kind: ossemu.FaultErrorAfterCommit, Code: "InternalError", Probability: 0.3}},
	"slow accept":        {fault: ossemu.Fault{Kind: ossemu.FaultSlowAccept, Delay: 20 * time.Millisecond, Probability: 0.5}, fresh: true},
}

func TestReadsUnderFaultsAreRightOrClassified(t *testing.T) {
	want := content(1<<20, 1)
	crc := crc64.Checksum(want, crc64.MakeTable(crc64.ECMA))
	for name, test := range readFaults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := ossemutest.Start(t, ossemu.Config{})
			bucket := openClient(t, emulatorConfig(t, e)).As(oss.Demand)
			info, err := bucket.Put(t.Context(), "object", bytes.NewReader(want), oss.PutOptions{})
			if err != nil {
				t.Fatal(err)
			}
			// The client learns what is normal before anything goes wrong.
			readMany(t, bucket, info.Object, want, 80, func(err error) { t.Errorf("a read failed without a fault: %v", err) }, nil)
			setFaults(t, e, test.fault)
			if test.fresh {
				bucket = openClient(t, emulatorConfig(t, e)).As(oss.Demand)
			}
			var failed, damaged, mistrusted int
			readMany(t, bucket, info.Object, want, rounds(t, 120), func(err error) {
				failed++
				if !test.mayFail || !classified(err) {
					t.Errorf("a read failed: %v", err)
				}
			}, func(whole bool, result oss.RangeResult) {
				damaged++
				// Damage on the way that keeps the length cannot be seen in a part; of the
				// whole, the checksum tells.
				if test.fault.Kind != ossemu.FaultCorrupt || whole && (!result.HasCRC64 || result.CRC64 != crc) {
					t.Errorf("a read returned wrong bytes (whole object: %v, %+v)", whole, result)
				}
				if whole {
					mistrusted++
				}
			})
			if test.fault.Kind == ossemu.FaultCorrupt && mistrusted == 0 {
				t.Error("no corrupted read of the whole object was met: the test tests nothing")
			}
			if test.mayFail && failed == 0 {
				t.Error("no read failed: the test tests nothing")
			}
			var injected int64
			for _, n := range e.Server.Stats().Faults {
				injected += n
			}
			t.Logf("%d faults, %d reads failed, %d were damaged", injected, failed, damaged)
			if injected == 0 {
				t.Error("no fault was injected")
			}
		})
	}
}

// readMany reads n ranges of o from eight goroutines, and tells of errors and of
// wrong bytes.
func readMany(t *testing.T, bucket oss.Bucket, o oss.Object, want []byte, n int, onError func(error), onDamage func(whole bool, result oss.RangeResult)) {
	var mu sync.Mutex
	var readers sync.WaitGroup
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for worker := range 8 {
		readers.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(worker)))
			for i := range n / 8 {
				from, size := rng.IntN(len(want)), 0
				switch i % 3 {
				case 0:
					from, size = 0, len(want)
				case 1:
					size = 1 + rng.IntN(len(want)-from)
				case 2:
					size = min(4096, len(want)-from)
				}
				buffer, announced := make([]byte, size), 0
				result, err := bucket.ReadRange(context.Background(), oss.RangeRequest{
					Object: o, Offset: int64(from), Buffer: buffer,
					Arrived: func(n int) {
						if n <= announced || n > size {
							t.Errorf("announced %d after %d of %d", n, announced, size)
						}
						announced = n
					},
				})
				mu.Lock()
				switch {
				case err != nil:
					onError(err)
				case announced != size:
					t.Errorf("%d of %d bytes were announced", announced, size)
				case !bytes.Equal(buffer, want[from:from+size]) && onDamage == nil:
					t.Errorf("bytes %d to %d are wrong", from, from+size)
				case !bytes.Equal(buffer, want[from:from+size]):
					onDamage(size == len(want), result)
				}
				mu.Unlock()
			}
		})
	}
	readers.Wait()
}

// writeFaults is every fault that a call must survive as if it had not been.
var writeFaults = map[string]ossemu.Fault{
	"lost reply":          {Kind: ossemu.FaultLostReply, Probability: 0.3},
	"error after commit":  {Kind: ossemu.FaultErrorAfterCommit, Code: "InternalError", Probability: 0.3},
	"internal error":      {Kind: ossemu.FaultError, Code: "InternalError", Probability: 0.3},
	"throttled":           {Kind: ossemu.FaultError, Code: "UploadTrafficRateLimitExceeded", Probability: 0.1},
	"reset":               {Kind: ossemu.FaultReset, Probability: 0.3},
	"truncated":           {Kind: ossemu.FaultTruncate, Probability: 0.3},
	"reset in the body":   {Kind: ossemu.FaultResetBody, Probability: 0.3},
	"wrong crc of puts":   {Kind: ossemu.FaultWrongCRC, Operation: "PutObject"},
	"wrong crc of wholes": {Kind: ossemu.FaultWrongCRC, Operation: "CompleteMultipartUpload"},
}

func TestWritesSurviveFaults(t *testing.T) {
	for name, fault := range writeFaults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := ossemutest.Start(t, ossemu.Config{})
			bucket := openClient(t, emulatorConfig(t, e)).As(oss.Upload)
			setFaults(t, e, fault)
			for i := range rounds(t, 3) {
				writeEverything(t, e, bucket, fmt.Sprintf("round-%d/", i), byte(i))
			}
		})
	}
}

// writeEverything makes, copies and deletes objects in every way, and compares
// what the server holds in the end.
func writeEverything(t *testing.T, e *ossemutest.Emulator, bucket oss.Bucket, prefix string, seed byte) {
	ctx := t.Context()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	whole, parts := content(70_000, seed), content(250_000, seed+100)

	put, err := bucket.Put(ctx, prefix+"put", bytes.NewReader(whole), oss.PutOptions{})
	ok(err)
	created, err := bucket.Put(ctx, prefix+"created", bytes.NewReader(whole), oss.PutOptions{ForbidOverwrite: true})
	ok(err)
	copied, err := bucket.Copy(ctx, prefix+"copied", put.Object, oss.PutOptions{ForbidOverwrite: true})
	ok(err)
	made, err := multipart(ctx, bucket, prefix+"made", parts, put.Object, oss.PutOptions{ForbidOverwrite: true})
	ok(err)
	for _, o := range []struct {
		info oss.Info
		want []byte
	}{{put, whole}, {created, whole}, {copied, whole}, {made, append(bytes.Clone(parts), whole...)}} {
		if got := e.Get(o.info.Key); !bytes.Equal(got, o.want) {
			t.Errorf("%s holds %d bytes, not the %d that were stored", o.info.Key, len(got), len(o.want))
		}
		head, err := bucket.Head(ctx, o.info.Key)
		ok(err)
		if head.Object != o.info.Object {
			t.Errorf("%s: told %+v, holds %+v", o.info.Key, o.info.Object, head.Object)
		}
	}
	if _, err := bucket.Put(ctx, prefix+"put", bytes.NewReader(parts), oss.PutOptions{ForbidOverwrite: true}); !errors.Is(err, oss.ErrExists) {
		t.Errorf("a forbidden overwrite: %v", err)
	}
	u, err := bucket.CreateUpload(ctx, prefix+"aborted", oss.PutOptions{})
	ok(err)
	ok(bucket.AbortUpload(ctx, u))
	ok(bucket.Delete(ctx, prefix+"copied"))
	ok(bucket.Delete(ctx, prefix+"put", prefix+"created", prefix+"made"))
	if left := e.Keys(prefix); len(left) != 0 {
		t.Errorf("left are %q", left)
	}
}

// multipart makes an object of sent parts and one copied part.
func multipart(ctx context.Context, bucket oss.Bucket, key string, sent []byte, copied oss.Object, o oss.PutOptions) (oss.Info, error) {
	u, err := bucket.CreateUpload(ctx, key, o)
	if err != nil {
		return oss.Info{}, err
	}
	const size = 125_000
	var parts []oss.Part
	for i := 0; i*size < len(sent); i++ {
		p, err := bucket.UploadPart(ctx, u, i+1, bytes.NewReader(sent[i*size:(i+1)*size]))
		if err != nil {
			return oss.Info{}, err
		}
		parts = append(parts, p)
	}
	p, err := bucket.CopyPart(ctx, u, len(parts)+1, copied, 0, copied.Size)
	if err != nil {
		return oss.Info{}, err
	}
	return bucket.CompleteUpload(ctx, u, append(parts, p), o)
}

// TestReadsSurviveARestart stops the server under the readers.
func TestReadsSurviveARestart(t *testing.T) {
	e := ossemutest.Start(t, ossemu.Config{})
	bucket := openClient(t, emulatorConfig(t, e)).As(oss.Demand)
	want := content(1<<20, 3)
	info, err := bucket.Put(t.Context(), "object", bytes.NewReader(want), oss.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	restarted := make(chan struct{})
	go func() {
		defer close(restarted)
		for range 3 {
			time.Sleep(100 * time.Millisecond)
			e.Restart()
		}
	}()
	for done := false; !done; {
		select {
		case <-restarted:
			done = true
		default:
		}
		readMany(t, bucket, info.Object, want, 80, func(err error) { t.Errorf("a read failed: %v", err) }, nil)
	}
}
