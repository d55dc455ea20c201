package conformance

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const rcloneBucket = "rclone-bucket"

// rclones returns rclone set up in both styles of addressing. As "Alibaba" it
// insists on the bucket in the host, which only the emulator can resolve, so it
// goes there as to a proxy.
func rclones(t *testing.T, addr string) map[string]command {
	t.Helper()
	common := "type = s3\naccess_key_id = " + keyID + "\nsecret_access_key = " + keySecret +
		"\nregion = " + region + "\nupload_cutoff = 5Mi\nchunk_size = 5Mi\n"
	all := make(map[string]command)
	for style, own := range map[string]string{
		"path": "provider = Other\nforce_path_style = true\nendpoint = http://" + addr + "\n",
		"host": "provider = Alibaba\nendpoint = http://" + domain + "\n",
	} {
		config := filepath.Join(t.TempDir(), "rclone.conf")
		if err := os.WriteFile(config, []byte("[r]\n"+common+own), 0o600); err != nil {
			t.Fatal(err)
		}
		c := command{
			name: "rclone",
			args: []string{"--config", config, "--retries", "1", "--low-level-retries", "1", "--contimeout", "5s", "--timeout", "30s"},
			env:  []string{"HOME=" + t.TempDir()},
		}
		if style == "host" {
			c.env = append(c.env, "http_proxy=http://"+addr)
		}
		all[style] = c
	}
	return all
}

func TestRclone(t *testing.T) {
	t.Parallel()
	addr := emulate(t, rcloneBucket)
	for style, rclone := range rclones(t, addr) {
		t.Run("style="+style, func(t *testing.T) {
			base := "r:" + rcloneBucket + "/" + style
			local, want := t.TempDir(), files()
			tree(t, local, want)
			rclone.must(t, "copy", local, base)

			names := func(path string) []string {
				t.Helper()
				var entries []struct {
					Path  string
					Size  int64
					IsDir bool
				}
				if err := json.Unmarshal([]byte(rclone.must(t, "lsjson", "-R", "--files-only", path)), &entries); err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, e := range entries {
					got = append(got, e.Path)
					if e.Size != int64(len(want[e.Path])) {
						t.Errorf("%s is listed with %d bytes, want %d", e.Path, e.Size, len(want[e.Path]))
					}
				}
				slices.Sort(got)
				return got
			}
			if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), names(base)); diff != "" {
				t.Errorf("listed (-want +got):\n%s", diff)
			}
			rclone.must(t, "check", "--download", local, base)
			// Modification times travel as metadata: nothing is left to copy.
			if out := rclone.must(t, "copy", "-v", "--dry-run", local, base); strings.Contains(out, "Skipped copy") {
				t.Errorf("copied again:\n%s", out)
			}

			big := want["big.bin"]
			for _, r := range [][2]int{{0, 1}, {5<<20 - 3, 7}, {len(big) - 10, 10}, {1 << 20, 8 << 20}} {
				got := rclone.must(t, "cat", "--offset", strconv.Itoa(r[0]), "--count", strconv.Itoa(r[1]), base+"/big.bin")
				sameBytes(t, "a range of big.bin", []byte(got), big[r[0]:r[0]+r[1]])
			}

			// A stream of unknown length, over the cutoff.
			streamed := content(12<<20+1, 6)
			if _, err := rclone.feed(streamed, "rcat", base+"/streamed"); err != nil {
				t.Fatal(err)
			}
			sameBytes(t, "streamed", []byte(rclone.must(t, "cat", base+"/streamed")), streamed)

			rename := func(from, to string) {
				t.Helper()
				rclone.must(t, "moveto", base+"/"+from, base+"/"+to)
				want[to] = want[from]
				delete(want, from)
			}
			want["streamed"] = streamed
			rename("dir/with space/a+b&c=d.bin", "dir/moved + renamed.bin")
			rename("big.bin", "moved/big ü.bin")
			rclone.must(t, "deletefile", base+"/small.txt")
			delete(want, "small.txt")
			if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), names(base)); diff != "" {
				t.Errorf("listed after renaming (-want +got):\n%s", diff)
			}

			back := t.TempDir()
			rclone.must(t, "copy", base, back)
			for name, b := range want {
				got, err := os.ReadFile(filepath.Join(back, filepath.FromSlash(name)))
				if err != nil {
					t.Error(err)
					continue
				}
				sameBytes(t, name, got, b)
			}
			rclone.must(t, "purge", base)
			if left := rclone.must(t, "lsf", "-R", "r:"+rcloneBucket); strings.Contains(left, style) {
				t.Errorf("left after purging:\n%s", left)
			}
		})
	}
}

// One style writes and the other reads.
func TestRcloneStylesSeeTheSameBucket(t *testing.T) {
	t.Parallel()
	addr := emulate(t)
	all := rclones(t, addr)
	all["host"].must(t, "mkdir", "r:made-by-host")
	local := t.TempDir()
	tree(t, local, map[string][]byte{"a b/c+d": content(1000, 1)})
	all["host"].must(t, "copy", local, "r:made-by-host")
	all["path"].must(t, "check", "--download", local, "r:made-by-host")
	if out := all["path"].must(t, "lsd", "r:"); !strings.Contains(out, "made-by-host") {
		t.Errorf("buckets:\n%s", out)
	}
	all["path"].must(t, "delete", "r:made-by-host")
	all["path"].must(t, "rmdir", "r:made-by-host")
	if out := all["host"].must(t, "lsd", "r:"); strings.Contains(out, "made-by-host") {
		t.Errorf("buckets:\n%s", out)
	}
}
