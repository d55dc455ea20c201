package chart

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"os"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Chart is a picture of panels side by side.
type Chart struct {
	Title string
	// Note stands below the panels in small letters.
	Note   string
	Panels []Panel
}

// Panel is a group of bars with a common scale.
type Panel struct {
	Title string
	Bars  []Bar
}

// Bar is one measured value.
type Bar struct {
	Name  string
	Value float64
	// Label is the value for people.
	Label string
	// Tone groups bars by colour.
	Tone Tone
}

// Tone is the colour of a bar.
type Tone int

// The tones.
const (
	// Subject is what the chart is about.
	Subject Tone = iota
	// Start is the subject's first, slow step.
	Start
	// Reference is what the subject is compared with.
	Reference
)

func (t Tone) colour() color.Color {
	switch t {
	case Start:
		return color.RGBA{0x8f, 0xb8, 0xde, 0xff}
	case Reference:
		return color.RGBA{0xb5, 0xb5, 0xb5, 0xff}
	default:
		return color.RGBA{0x1f, 0x6f, 0xb4, 0xff}
	}
}

// The measures of a picture.
const (
	panelWidth = 13 * vg.Centimeter
	barHeight  = 0.62 * vg.Centimeter
	titleSpace = 1.5 * vg.Centimeter
	noteSpace  = 0.9 * vg.Centimeter
	pngDPI     = 144
)

// Save draws c into a file, whose name ends with .svg or .png.
func (c *Chart) Save(path string) error {
	bars := 0
	for _, p := range c.Panels {
		bars = max(bars, len(p.Bars))
	}
	if bars == 0 {
		return fmt.Errorf("draw %q: there are no bars", path)
	}
	width := panelWidth * vg.Length(len(c.Panels))
	height := titleSpace + noteSpace + 1.6*vg.Centimeter + barHeight*1.5*vg.Length(bars)
	var canvas vg.CanvasSizer
	var out io.WriterTo
	switch ext := filepath.Ext(path); ext {
	case ".svg":
		svg := vgsvg.New(width, height)
		canvas, out = svg, svg
	case ".png":
		png := vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(pngDPI))}
		canvas, out = png, png
	default:
		return fmt.Errorf("draw %q: pictures are .svg or .png", path)
	}
	if err := c.draw(draw.New(canvas)); err != nil {
		return fmt.Errorf("draw %q: %w", path, err)
	}
	var drawn bytes.Buffer
	if _, err := out.WriteTo(&drawn); err != nil {
		return fmt.Errorf("draw %q: %w", path, err)
	}
	// A browser without the font must not fall back to one with serifs.
	final := bytes.ReplaceAll(drawn.Bytes(), []byte("font-family:Liberation Sans;"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;"))
	if err := os.WriteFile(path, final, 0o644); err != nil {
		return fmt.Errorf("draw picture: %w", err)
	}
	return nil
}

func (c *Chart) draw(canvas draw.Canvas) error {
	canvas.SetColor(color.White)
	canvas.Fill(canvas.Path())
	title, note := style(13, draw.XLeft, color.Black), style(8, draw.XLeft, color.Gray{0x55})
	margin := 0.4 * vg.Centimeter
	canvas.FillText(title, vg.Point{X: canvas.Min.X + margin, Y: canvas.Max.Y - 0.8*vg.Centimeter}, c.Title)
	canvas.FillText(note, vg.Point{X: canvas.Min.X + margin, Y: canvas.Min.Y + 0.3*vg.Centimeter}, c.Note)
	for i, p := range c.Panels {
		drawn, err := p.plot()
		if err != nil {
			return err
		}
		area := canvas
		area.Min.X += panelWidth*vg.Length(i) + margin
		area.Max.X = area.Min.X + panelWidth - 2*margin
		area.Max.Y -= titleSpace
		area.Min.Y += noteSpace
		drawn.Draw(area)
	}
	return nil
}

// plot makes the panel. Bars are listed from the top, so their order is turned
// round for an axis that grows upwards.
func (p Panel) plot() (*plot.Plot, error) {
	drawn := plot.New()
	drawn.Title.Text = p.Title
	drawn.Title.TextStyle = style(11, draw.XCenter, color.Black)
	drawn.X.Min = 0
	drawn.HideX()
	drawn.Y.Width = 0
	drawn.Y.Tick.Width = 0
	drawn.Y.Padding = 0
	most := 0.0
	names := make([]string, len(p.Bars))
	for i, b := range p.Bars {
		at := len(p.Bars) - 1 - i
		names[at] = b.Name
		most = max(most, b.Value)
		bar, err := plotter.NewBarChart(plotter.Values{b.Value}, barHeight)
		if err != nil {
			return nil, err
		}
		bar.Horizontal, bar.XMin = true, float64(at)
		bar.Color, bar.LineStyle.Width = b.Tone.colour(), 0
		label, err := plotter.NewLabels(plotter.XYLabels{
			XYs: plotter.XYs{{X: b.Value, Y: float64(at)}}, Labels: []string{" " + b.Label},
		})
		if err != nil {
			return nil, err
		}
		label.TextStyle[0] = style(10, draw.XLeft, color.Black)
		label.TextStyle[0].YAlign = draw.YCenter
		drawn.Add(bar, label)
	}
	drawn.NominalY(names...)
	drawn.Y.Tick.Label = style(10, draw.XRight, color.Black)
	drawn.Y.Tick.Label.YAlign = draw.YCenter
	drawn.Y.Min, drawn.Y.Max = -0.6, float64(len(p.Bars))-0.4
	drawn.X.Max = most * 1.35 // room for the labels
	return drawn, nil
}

func style(points float64, align text.XAlignment, c color.Color) text.Style {
	f := font.From(plot.DefaultFont, font.Points(points))
	f.Variant = "Sans"
	return text.Style{Color: c, Font: f, XAlign: align, Handler: plot.DefaultTextHandler}
}

// WriteText draws c for a terminal of the given width.
func (c *Chart) WriteText(w io.Writer, columns int) error {
	var b strings.Builder
	for _, p := range c.Panels {
		names, labels, most := 0, 0, 0.0
		for _, bar := range p.Bars {
			names = max(names, len([]rune(bar.Name)))
			labels = max(labels, len([]rune(bar.Label)))
			most = max(most, bar.Value)
		}
		room := max(10, columns-names-labels-6)
		fmt.Fprintf(&b, "\n  %s\n", p.Title)
		for _, bar := range p.Bars {
			pad := strings.Repeat(" ", names-len([]rune(bar.Name)))
			fmt.Fprintf(&b, "  %s%s %s %s\n", pad, bar.Name, blocks(bar.Value/most*float64(room)), bar.Label)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// blocks draws a bar of n columns to an eighth of a column.
func blocks(n float64) string {
	eighths := int(n*8 + 0.5)
	s := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		s += string(rune('█' + 8 - rest)) // U+2589 is seven eighths, U+258F one
	}
	if s == "" {
		s = "▏"
	}
	return s
}
