package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/reach"
)

// configCmd is `pailfs config`.
type configCmd struct {
	reach.SettingsFlags
	JSON bool `name:"json" xor:"form" help:"Print JSON, with the origin of every value."`
	YAML bool `name:"yaml" xor:"form" help:"Print a configuration file that says the same."`
}

// Help gives examples.
func (configCmd) Help() string {
	return `The settings come from flags, then PAILFS_ variables, then the file, then defaults; the first that says something wins.

Exit codes: 0 shown, 1 failed, 2 wrong arguments, or settings that cannot be.

Examples:

	pailfs config
	pailfs config --config /etc/pailfs/data.yaml --memory 2GiB
	PAILFS_CACHE_DIR=/ssd pailfs config --yaml > pailfs.yaml`
}

// Run prints the settings in force.
func (c *configCmd) Run(p command.Program, parsed *kong.Context) error {
	l, err := c.Load(p, parsed)
	if err != nil {
		return err
	}
	switch {
	case c.JSON:
		return printSettingsJSON(p.Stdout, l)
	case c.YAML:
		return printSettingsYAML(p.Stdout, l)
	default:
		return printSettings(p.Stdout, l)
	}
}

// settingInForce is one setting as `pailfs config --json` prints it.
type settingInForce struct {
	Name  string       `json:"name"`
	Value string       `json:"value"`
	Layer config.Layer `json:"layer"`
	Where string       `json:"where,omitempty"`
}

func settingsInForce(l *config.Loaded) []settingInForce {
	all := config.Settings()
	in := make([]settingInForce, 0, len(all))
	for _, s := range all {
		o := l.Origin(s.Name)
		in = append(in, settingInForce{Name: s.Name, Value: s.Text(&l.Config), Layer: o.Layer, Where: o.Where})
	}
	return in
}

func printSettings(w io.Writer, l *config.Loaded) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "SETTING\tVALUE\tFROM")
	for _, s := range settingsInForce(l) {
		value := s.Value
		if value == "" {
			value = "-"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\n", s.Name, value, config.Origin{Layer: s.Layer, Where: s.Where})
	}
	return tw.Flush()
}

func printSettingsJSON(w io.Writer, l *config.Loaded) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(settingsInForce(l))
}

func printSettingsYAML(w io.Writer, l *config.Loaded) error {
	document := &yaml.Node{Kind: yaml.MappingNode}
	for _, s := range config.Settings() {
		value := &yaml.Node{Kind: yaml.ScalarNode, Value: s.Text(&l.Config)}
		if s.Kind != "boolean" {
			value.Tag = "!!str" // keeps 022 and an empty text what they are
		}
		document.Content = append(document.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: s.Key}, value)
	}
	encoder := yaml.NewEncoder(w)
	if err := encoder.Encode(document); err != nil {
		return fmt.Errorf("write YAML: %w", err)
	}
	return encoder.Close()
}
