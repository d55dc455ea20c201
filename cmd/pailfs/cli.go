package main

import (
	"strings"

	"github.com/alecthomas/kong"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/detached"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/doctor"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/ls"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/manifests"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/top"
)

// cli is the grammar of the command line.
type cli struct {
	Mount      mountCmd      `cmd:"" help:"Mount a bucket, or a prefix of it."`
	Umount     umountCmd     `cmd:"" help:"Unmount and wait until the daemon has ended."`
	Drain      drainCmd      `cmd:"" help:"Say that the machine is about to go: uploads come before all else."`
	Flush      flushCmd      `cmd:"" help:"Wait until what was written is in the object store."`
	Staged     stagedCmd     `cmd:"" help:"List, upload, rescue or give up what a dead mount had not uploaded."`
	LS         ls.Cmd        `cmd:"" name:"ls" help:"Show the mounts of this host and how each does."`
	Status     statusCmd     `cmd:"" help:"Show what a mount does."`
	Top        top.Cmd       `cmd:"" help:"Show what mounts do in a second, again and again."`
	Doctor     doctor.Cmd    `cmd:"" help:"Look whether this host, and a bucket from it, are what a mount needs."`
	GPU        gpuCmd        `cmd:"" name:"gpu" elsewhere:"pailfs-gpu" help:"Show the GPUs of this host, their health and who uses them."`
	Run        gpuCmd        `cmd:"" name:"run" elsewhere:"pailfs-gpu" help:"Run a command on healthy, free GPUs beside a healthy mount."`
	Manifest   manifests.Cmd `cmd:"" help:"Make, publish and compare manifests: the names of a bucket, written down once."`
	Warm       warmCmd       `cmd:"" help:"Bring files and folders into the cache."`
	Evict      evictCmd      `cmd:"" help:"Remove files and folders from the cache."`
	Config     configCmd     `cmd:"" help:"Show the settings in force and where each comes from."`
	Help       helpCmd       `cmd:"" help:"Show what a command does and takes."`
	Completion completionCmd `cmd:"" help:"Print the script that completes command lines in a shell."`
	Manual     manualCmd     `cmd:"" help:"Write the manual pages into a directory."`
	Version    versionCmd    `cmd:"" help:"Show the version."`

	ShowVersion versionFlag `name:"version" help:"Show the version."`
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

// runCommand runs the command that the arguments name. The link leads to the process that waits for
// a detached daemon; it is nil in all others.
func runCommand(p command.Program, link *detached.Link) error {
	if len(p.Args) > 0 && (p.Args[0] == "gpu" || p.Args[0] == "run") {
		return execGPU(p)
	}
	return p.Call(description, new(cli), kong.ExplicitGroups(flagGroups), kong.ValueFormatter(helpText), kong.Bind(link))
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
