package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
)

// cli is the grammar of the command line.
type cli struct {
	Mount    mountCmd    `cmd:"" help:"Mount a bucket, or a prefix of it."`
	Umount   umountCmd   `cmd:"" help:"Unmount and wait until the daemon has ended."`
	Drain    drainCmd    `cmd:"" help:"Say that the machine is about to go: uploads come before all else."`
	Flush    flushCmd    `cmd:"" help:"Wait until what was written is in the object store."`
	Staged   stagedCmd   `cmd:"" help:"List, upload, rescue or give up what a dead mount had not uploaded."`
	Status   statusCmd   `cmd:"" help:"Show what a mount does."`
	GPU      gpuCmd      `cmd:"" name:"gpu" help:"Show the GPUs of this host, their health and who uses them."`
	Run      gpuCmd      `cmd:"" name:"run" help:"Run a command on healthy, free GPUs beside a healthy mount."`
	Manifest manifestCmd `cmd:"" help:"Make, publish and compare manifests: the names of a bucket, written down once."`
	Warm     warmCmd     `cmd:"" help:"Bring files and folders into the cache."`
	Evict    evictCmd    `cmd:"" help:"Remove files and folders from the cache."`
	Config   configCmd   `cmd:"" help:"Show the settings in force and where each comes from."`
	Version  versionCmd  `cmd:"" help:"Show the version."`
}

// settingsFlags are the flags of every command that needs the configuration.
type settingsFlags struct {
	ConfigFile string        `name:"config" placeholder:"FILE" help:"YAML file of settings; PAILFS_CONFIG names one as well."`
	Settings   config.Config `embed:""`
}

// flagGroups are the headings of --help.
var flagGroups = []kong.Group{
	{Key: "store", Title: "Object store:"},
	{Key: "cache", Title: "Cache:"},
	{Key: "write", Title: "Writing:"},
	{Key: "mount", Title: "File system:"},
	{Key: "daemon", Title: "Daemon:"},
}

const description = `Mount a bucket of Alibaba Cloud OSS as a file system, read through a cache in memory and on SSD.

Keys are never given as flags: set OSS_ACCESS_KEY_ID and OSS_ACCESS_KEY_SECRET, or see --credentials.`

// runCommand parses the arguments and runs the command they name.
func (p program) runCommand() error {
	var grammar cli
	answered := false // --help was given and has been answered
	parser, err := kong.New(&grammar,
		kong.Name("pailfs"),
		kong.Description(description),
		kong.ExplicitGroups(flagGroups),
		kong.Writers(p.stdout, p.stderr),
		kong.Exit(func(int) { answered = true }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.ValueFormatter(helpText),
	)
	if err != nil {
		return fmt.Errorf("build command line: %w", err)
	}
	if len(p.args) == 0 {
		p.args = []string{"--help"}
	}
	if p.args[0] == "gpu" || p.args[0] == "run" {
		return p.handOver()
	}
	parsed, err := parser.Parse(p.args)
	if answered {
		return nil
	}
	if err != nil {
		about := "pailfs"
		if slices.ContainsFunc(parser.Model.Children, func(c *kong.Node) bool { return c.Name == p.args[0] }) {
			about += " " + p.args[0]
		}
		return usage(fmt.Errorf("%w; see %s --help", err, about))
	}
	return parsed.Run(p, parsed)
}

// helpText returns what --help says of a flag or argument: the first sentence,
// the values and the default. The rest is in CONFIGURATION.md.
func helpText(v *kong.Value) string {
	text, _, _ := strings.Cut(v.Help, ". ")
	text = strings.TrimSuffix(text, ".")
	if values := strings.Split(v.Tag.Get("oneof"), ","); len(values) > 1 && len(values) < 6 {
		text += ": " + strings.Join(values, ", ")
	}
	if v.HasDefault && v.Default != "" && v.Default != "false" {
		text += " (default " + v.Default + ")"
	}
	return text + "."
}

// load returns the configuration in force. The flags that were given are found in
// the parser's path, for a flag may be given with the value of its default.
func (f *settingsFlags) load(p program, parsed *kong.Context) (*config.Loaded, error) {
	return f.loadOnly(p, parsed, nil)
}

// loadOnly is load where only the named flags are settings, or all if names is nil.
func (f *settingsFlags) loadOnly(p program, parsed *kong.Context, names []string) (*config.Loaded, error) {
	given := map[string]string{}
	for _, step := range parsed.Path {
		if step.Flag != nil && (names == nil || slices.Contains(names, step.Flag.Name)) {
			given[step.Flag.Name] = "--" + step.Flag.Name
		}
	}
	path := f.ConfigFile
	if path == "" {
		path = p.env(config.FileEnv)
	}
	l, err := config.Load(path, p.environ, config.Flags{Values: &f.Settings, Given: given})
	if err != nil {
		return nil, usage(err)
	}
	return l, nil
}

// env returns the value of an environment variable, "" if it is not set.
func (p program) env(name string) string {
	for _, assignment := range slices.Backward(p.environ) {
		if value, ok := strings.CutPrefix(assignment, name+"="); ok {
			return value
		}
	}
	return ""
}
