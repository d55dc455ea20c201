package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/terminal"
	"github.com/pailfs/pailfs/prefetch/control"
	"github.com/pailfs/pailfs/prefetch/residency"
)

// warmCheck says how much of the paths is in the cache, and fails unless all is.
func warmCheck(ctx context.Context, p command.Program, client *control.Client, paths []string, asJSON bool) error {
	var cold int64
	for _, piece := range batches(paths) {
		var result control.MeasureResult
		if err := client.Call(ctx, "measure", control.MeasureParams{Paths: piece}, &result); err != nil {
			return err
		}
		for _, m := range result.Results {
			if err := showMeasured(p, m, asJSON); err != nil {
				return err
			}
			cold += m.Files - m.FilesWarm
			if m.Error != "" {
				cold++
			}
		}
	}
	if cold > 0 {
		return fmt.Errorf("%d files or paths are not in the cache", cold)
	}
	return nil
}

func showMeasured(p command.Program, m residency.Measured, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(p.Stdout).Encode(m)
	}
	path := m.Path
	if path == "" {
		path = "."
	}
	text := fmt.Sprintf("%s: %s of %s, %d of %d files", path, terminal.Size(m.BytesWarm), terminal.Size(m.Bytes), m.FilesWarm, m.Files)
	if m.Error != "" {
		text += ": " + strings.Join(strings.Fields(m.Error), " ")
	}
	_, err := fmt.Fprintln(p.Stdout, text)
	return err
}
