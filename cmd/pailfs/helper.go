package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
)

// The exit codes that mount(8) expects of its helpers.
const (
	helperUsage  = 1
	helperFailed = 32
)

// runMountHelper is the program as mount(8) calls it:
//
//	mount.fuse.pailfs SOURCE MOUNTPOINT [-sfnvh] [-N namespace] [-o options] [-t type]
//
// It mounts in the background and returns when the mount answers.
func runMountHelper(p command.Program) int {
	call, err := parseHelperArgs(p.Args)
	if err == nil && call.help {
		fmt.Fprintln(p.Stdout, "usage: mount -t fuse.pailfs oss://bucket[/prefix] MOUNTPOINT [-o option,...]; see pailfs mount --help")
		return command.OK
	}
	if err == nil {
		p.Args, err = call.mountArgs()
	}
	if err != nil {
		p.Report(err)
		return helperUsage
	}
	if call.verbose {
		p.Notice("running pailfs " + strings.Join(p.Args, " "))
	}
	if call.fake {
		// -f does everything but the mounting: the options have been understood.
		p.Args = append([]string{"config"}, slices.DeleteFunc(slices.Clone(p.Args[1:]), func(a string) bool {
			return a == "--detach" || !strings.HasPrefix(a, "--")
		})...)
		p.Stdout = io.Discard
	}
	err = runCommand(p, nil)
	p.Report(err)
	switch command.Code(err) {
	case command.OK:
		return command.OK
	case command.Refused:
		return helperUsage
	default:
		return helperFailed
	}
}

// helperCall is a call of the mount helper.
type helperCall struct {
	source, target              string
	options                     []string
	fake, sloppy, verbose, help bool
}

// parseHelperArgs reads the arguments of a mount helper. Flags without values may
// be joined, and a value may follow its flag directly.
func parseHelperArgs(args []string) (helperCall, error) {
	var call helperCall
	var operands []string
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if len(arg) < 2 || arg[0] != '-' {
			operands = append(operands, arg)
			continue
		}
		for j := 1; j < len(arg); j++ {
			switch arg[j] {
			case 'f':
				call.fake = true
			case 's':
				call.sloppy = true
			case 'v':
				call.verbose = true
			case 'h':
				call.help = true
			case 'r':
				call.options = append(call.options, "ro")
			case 'n', 'w': // there is no mtab to write
			case 'o', 't', 'N':
				value := arg[j+1:]
				if value == "" {
					if i++; i == len(args) {
						return call, fmt.Errorf("option -%c needs a value", arg[j])
					}
					value = args[i]
				}
				if arg[j] == 'o' {
					call.options = append(call.options, splitOptions(value)...)
				}
				j = len(arg)
			default:
				return call, fmt.Errorf("unknown flag -%c: a mount helper knows -f, -n, -o, -s, -t and -v", arg[j])
			}
		}
	}
	if call.help {
		return call, nil
	}
	if len(operands) != 2 {
		return call, errors.New("give a source and a mount point: oss://bucket/prefix /mnt/data")
	}
	call.source, call.target = operands[0], operands[1]
	return call, nil
}

// splitOptions parts options at their commas, but not within double quotes, which
// are removed.
func splitOptions(text string) []string {
	var options []string
	var option strings.Builder
	quoted := false
	for _, r := range text {
		switch {
		case r == '"':
			quoted = !quoted
		case r == ',' && !quoted:
			options = append(options, option.String())
			option.Reset()
		default:
			option.WriteRune(r)
		}
	}
	return append(options, option.String())
}

// genericOptions are those that mount(8), fstab(5) and systemd give a meaning
// to and that need nothing from us: either they are not for the file system, or
// they ask for what every pailfs mount is (nosuid, nodev, noatime).
var genericOptions = []string{
	"auto", "noauto", "defaults", "_netdev", "nofail", "user", "nouser", "users", "group", "owner",
	"rw", "exec", "nosuid", "nodev", "async", "noatime", "nodiratime", "relatime", "norelatime", "lazytime", "nolazytime",
	"diratime", "nostrictatime", "noiversion", "loud", "silent", "nomand", "atime",
}

// refusedOptions ask for what a pailfs mount does not give.
var refusedOptions = []string{"suid", "dev", "sync", "dirsync", "remount", "bind", "rbind", "move", "strictatime", "mand", "iversion"}

// mountArgs returns the arguments of the command mount that mean the same.
func (call helperCall) mountArgs() ([]string, error) {
	args := []string{"mount", "--detach"}
	for _, option := range call.options {
		arg, err := call.optionArg(option)
		if err != nil {
			return nil, err
		}
		if arg != "" {
			args = append(args, arg)
		}
	}
	return append(args, "--", call.source, call.target), nil
}

// optionArg returns the flag that an option means, "" for none.
func (call helperCall) optionArg(option string) (string, error) {
	name, value, hasValue := strings.Cut(option, "=")
	flag := strings.ReplaceAll(name, "_", "-")
	switch {
	case option == "", slices.Contains(genericOptions, option),
		strings.HasPrefix(name, "x-"), strings.HasPrefix(name, "X-"), name == "comment", name == "helper":
		return "", nil
	case option == "ro":
		return "--read-only", nil
	case slices.Contains(refusedOptions, option):
		return "", fmt.Errorf("mount option %s is not supported: remove it", option)
	case flag == "config" && hasValue:
		return "--config=" + value, nil
	}
	names := []string{"config", "ro"}
	for _, s := range config.Settings() {
		if s.Name != flag {
			names = append(names, s.Name)
			continue
		}
		switch {
		case hasValue:
			return "--" + s.Name + "=" + value, nil
		case s.Kind == "boolean":
			return "--" + s.Name, nil
		default:
			return "", fmt.Errorf("mount option %s needs a value: write %s=VALUE", name, name)
		}
	}
	if call.sloppy {
		return "", nil
	}
	if near := config.Nearest(flag, names); near != "" {
		return "", fmt.Errorf("mount option %q is unknown: did you mean %s?", name, near)
	}
	return "", fmt.Errorf("mount option %q is unknown: remove it; pailfs config lists the settings", name)
}
