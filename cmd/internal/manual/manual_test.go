package manual

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// grammar has one of each: commands below a command, values, paths, flags of all, what is hidden.
type grammar struct {
	Level string `enum:"low,high" default:"low" placeholder:"LEVEL" help:"How much. It's told twice."`

	Put struct {
		From string `placeholder:"FILE" help:"Where from."`
		Now  bool   `help:"At once."`
		Path string `arg:"" placeholder:"PATH" help:"What to put."`
	} `cmd:"" help:"Put a thing."`
	Store struct {
		Empty struct {
			Size string `help:"How much of it."`
		} `cmd:"" help:"Remove all."`
		List struct{} `cmd:"" help:"Show all."`
	} `cmd:"" help:"Look after things."`
	Other  struct{} `cmd:"" elsewhere:"thing-other" help:"Done by another program."`
	Secret struct{} `cmd:"" hidden:"" help:"For nobody."`
}

func model(t *testing.T) *kong.Application {
	t.Helper()
	parser, err := kong.New(new(grammar), kong.Name("thing"), kong.Description("Do things.\n\n.B is no macro here, and \\fR no font."))
	if err != nil {
		t.Fatal(err)
	}
	return parser.Model
}

func TestPagesSayWhatTheGrammarSays(t *testing.T) {
	app := model(t)
	pages := append(Commands(app, "1.2"), Overview(app, "1.2"))
	var names []string
	formatted := map[string]string{}
	for _, p := range pages {
		names = append(names, p.File)
		lint := exec.Command("mandoc", "-T", "lint", "-W", "error")
		lint.Stdin = strings.NewReader(p.Text)
		if out, err := lint.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", p.File, err, out)
		}
		show := exec.Command("mandoc", "-T", "utf8")
		show.Stdin = strings.NewReader(p.Text)
		out, err := show.Output()
		if err != nil {
			t.Fatal(err)
		}
		// What is bold is printed over itself.
		var plain []rune
		for _, r := range string(out) {
			if r == '\b' {
				plain = plain[:len(plain)-1]
				continue
			}
			plain = append(plain, r)
		}
		formatted[p.File] = strings.Join(strings.Fields(string(plain)), " ")
	}
	if want := []string{"thing-put.1", "thing-store.1", "thing.1"}; !slices.Equal(names, want) {
		t.Errorf("pages are %q, want %q", names, want)
	}
	for file, wants := range map[string][]string{
		"thing.1":       {"thing - do things", ".B is no macro here, and \\fR no font.", "thing-other(1) Done by another program.", "thing 1.2"},
		"thing-put.1":   {"thing put [OPTION...] <path>", "--from=FILE Where from.", "--now At once.", "It's told twice. One of low, high. The default is low."},
		"thing-store.1": {"thing store empty [OPTION...]", "STORE EMPTY Remove all.", "STORE LIST Show all."},
	} {
		for _, want := range wants {
			if !strings.Contains(formatted[file], want) {
				t.Errorf("%s does not say %q:\n%s", file, want, formatted[file])
			}
		}
	}
}

// TestShellsComplete asks the shells themselves what follows a command line.
func TestShellsComplete(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	app := model(t)
	// Each reads the script, takes the words of the line, the last one unfinished, and prints a candidate a line.
	programs := map[string]string{
		"bash": `compopt() { :; }; source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _thing thing "${!#}" ""; printf '%s\n' "${COMPREPLY[@]}"`,
		"zsh": `_describe() { local -a found=("${(@P)2}"); print -l -- ${(M)found%%:*:#${current}*} ${(M)found:#${current}*}; }
_files() { print -l -- *(N); }; compset() { current=${current#*=}; }
words=("$@"); CURRENT=$#; source "$0"`,
		"fish": `source $argv[1]; complete -C (string join ' ' -- $argv[2..-1])`,
	}
	for _, shell := range Shells() {
		script := filepath.Join(t.TempDir(), shell)
		if err := os.WriteFile(script, []byte(Completion(app, shell)), 0o600); err != nil {
			t.Fatal(err)
		}
		for line, want := range map[string][]string{
			"thing ":                    {"put", "store", "other"},
			"thing s":                   {"store"},
			"thing --level high store ": {"empty", "list"},
			"thing store empty --s":     {"--size"},
			"thing put --level ":        {"low", "high"},
			"thing put --from ":         {"a file"},
			"thing put ":                {"a file"},
			"thing store empty --size ": nil,
		} {
			args := append([]string{script}, strings.Split(line, " ")...)
			if shell == "zsh" {
				args = append([]string{"-f"}, append([]string{"-c", programs[shell]}, args...)...)
			} else {
				args = append([]string{"-c", programs[shell]}, args...)
			}
			cmd := exec.Command(shell, args...)
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "HOME="+dir)
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%s, %q: %v", shell, line, err)
			}
			var got []string
			for found := range strings.Lines(string(out)) {
				found, _, _ = strings.Cut(strings.TrimSpace(found), "\t")
				found, _, _ = strings.Cut(found, ":")
				if found = strings.ReplaceAll(found, `\`, ""); found != "" && !slices.Contains(got, found) {
					got = append(got, found)
				}
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("%s completes %q with %q, want %q", shell, line, got, want)
			}
		}
	}
	if s := Completion(app, "csh"); s != "" {
		t.Errorf("csh gets %q", s)
	}
}
