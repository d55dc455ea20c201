package demo

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/pailfs/pailfs/bench/chart"
	"github.com/pailfs/pailfs/bench/machine"
	"github.com/pailfs/pailfs/bench/result"
)

// present prints the table and draws the picture.
func (s *show) present() error {
	facts, err := machine.Look(s.Out)
	if err != nil {
		return err
	}
	s.table()
	picture := s.chart(facts)
	for _, name := range []string{"demo.svg", "demo.png"} {
		if err := picture.Save(s.path(name)); err != nil {
			return err
		}
	}
	if s.Columns > 0 {
		if err := picture.WriteText(s.Stdout, s.Columns); err != nil {
			return fmt.Errorf("draw: %w", err)
		}
	}
	fmt.Fprintf(s.Stdout, "\npicture: %s and demo.svg\n", s.path("demo.png"))
	return nil
}

func (s *show) table() {
	f := &s.found
	fmt.Fprintln(s.Stdout)
	w := tabwriter.NewWriter(s.Stdout, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\tone file of %s\t%d of %d images\t\n", showBytes(s.PackedBytes), s.Sample, len(s.data.files))
	for _, r := range f.rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t\n", r.name, result.ShowValue(r.big, result.BytesPerSecond), result.ShowValue(r.small, result.FilesPerSecond))
	}
	_ = w.Flush() // to the terminal
	fmt.Fprintln(s.Stdout, "\npage cache dropped: the large file comes from SSD, images from SSD or the daemon's memory")
	fmt.Fprintf(s.Stdout, "listed %d names in %.1f s; read all %d images in %.1f s, %d at once (%s)\n",
		f.names, f.listSeconds, len(s.data.files), f.epochSeconds, epochReaders,
		result.ShowValue(float64(len(s.data.files))/f.epochSeconds, result.FilesPerSecond))
	fmt.Fprintf(s.Stdout, "every byte of every read was compared with the original: %s, no difference\n", showBytes(f.checked))
}

func (s *show) chart(facts machine.Facts) *chart.Chart {
	big := chart.Panel{Title: fmt.Sprintf("one file of %s, one reader", showBytes(s.PackedBytes))}
	small := chart.Panel{Title: fmt.Sprintf("%d images of %d bytes, %d readers", s.Sample, s.data.images.Files[0].Size, s.Readers)}
	for i, r := range s.found.rows {
		tone := chart.Subject
		switch {
		case r.plain:
			tone = chart.Reference
		case i == 0:
			tone = chart.Start
		}
		big.Bars = append(big.Bars, chart.Bar{Name: r.name, Value: r.big, Label: result.ShowValue(r.big, result.BytesPerSecond), Tone: tone})
		small.Bars = append(small.Bars, chart.Bar{Name: r.name, Value: r.small, Label: result.ShowValue(r.small, result.FilesPerSecond), Tone: tone})
	}
	return &chart.Chart{
		Title: "Fashion-MNIST in a bucket, read through pailfs",
		Note: fmt.Sprintf("server profile %q; %d cores, Linux %s, %s; commit %s; medians of %d, cold once; every byte checked",
			s.Profile, facts.Cores, facts.Kernel, facts.FileSystem, facts.Commit, rounds),
		Panels: []chart.Panel{big, small},
	}
}

// explain says how to look around in what was left running.
func (s *show) explain() error {
	program := s.Programs + "/pailfs"
	fmt.Fprintf(s.Stdout, "\nThe mount stays. Look around:\n\n")
	for _, line := range []string{
		"ls " + s.session.Mount + "/images/train",
		program + " status " + s.session.Mount,
		"getfattr -n user.pailfs.tier " + s.session.Mount + "/" + packedName,
	} {
		fmt.Fprintln(s.Stdout, "  "+line)
	}
	fmt.Fprintf(s.Stdout, "\nThe server is %s; for other clients:\n\n  export %s\n", s.server.Endpoint(), strings.Join(s.server.Environment(), " "))
	fmt.Fprintf(s.Stdout, "\nEnd it all and remove the data:\n\n  %s umount %s; kill %d; rm -r %s\n", program, s.session.Mount, s.server.PID(), s.Out)
	return nil
}
