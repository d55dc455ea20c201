package chart

import (
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func example() *Chart {
	return &Chart{
		Title: "Reading Fashion-MNIST through pailfs", Note: "two cores, ext4; the server adds 30 ms",
		Panels: []Panel{
			{"One large file", []Bar{
				{"cold, from the bucket", 0.61e9, "612 MB/s", Start},
				{"from SSD", 2.1e9, "2.10 GB/s", Subject},
				{"raw disk", 2.2e9, "2.20 GB/s", Reference},
				{"page cache", 9.7e9, "9.70 GB/s", Subject},
			}},
			{"Images", []Bar{{"cold", 450, "450 files/s", Start}, {"warm", 40000, "40,000 files/s", Subject}}},
		},
	}
}

func TestSaveDrawsBothForms(t *testing.T) {
	dir := t.TempDir()
	svg, picture := filepath.Join(dir, "c.svg"), filepath.Join(dir, "c.png")
	if out := os.Getenv("CHART_OUT"); out != "" {
		svg, picture = filepath.Join(out, "c.svg"), filepath.Join(out, "c.png")
	}
	for _, path := range []string{svg, picture} {
		if err := example().Save(path); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(svg)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Reading Fashion-MNIST", "612 MB/s", "cold, from the bucket", "40,000 files/s"} {
		if !strings.Contains(string(b), want) {
			t.Errorf("the SVG lacks %q", want)
		}
	}
	f, err := os.Open(picture)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	image, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	if size := image.Bounds().Size(); size.X < 800 || size.Y < 200 {
		t.Errorf("the picture is %v", size)
	}
	if r, g, b, a := image.At(0, 0).RGBA(); r&g&b&a != 0xffff {
		t.Error("the background is not white")
	}
}

func TestSaveRefusesWhatCannotBeDrawn(t *testing.T) {
	if err := example().Save(filepath.Join(t.TempDir(), "c.gif")); err == nil {
		t.Error("a GIF was drawn")
	}
	if err := (&Chart{}).Save(filepath.Join(t.TempDir(), "c.svg")); err == nil {
		t.Error("nothing was drawn")
	}
}

func TestWriteTextScalesBars(t *testing.T) {
	var b strings.Builder
	if err := example().WriteText(&b, 80); err != nil {
		t.Fatal(err)
	}
	lengths := map[string]int{}
	for line := range strings.Lines(b.String()) {
		for _, name := range []string{"from SSD", "page cache", "raw disk"} {
			if strings.Contains(line, name+" ") {
				lengths[name] = strings.Count(line, "█")
			}
		}
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > 80 {
			t.Errorf("a line has %d columns: %q", n, line)
		}
	}
	if lengths["page cache"] < 40 || lengths["raw disk"] < lengths["from SSD"] || lengths["from SSD"]*5 > lengths["page cache"]*2 {
		t.Errorf("bars are %v", lengths)
	}
}

func TestBlocks(t *testing.T) {
	for n, want := range map[float64]string{0: "▏", 1: "█", 1.5: "█▌", 0.125: "▏", 2.875: "██▉"} {
		if got := blocks(n); got != want {
			t.Errorf("%v columns are %q, want %q", n, got, want)
		}
	}
}
