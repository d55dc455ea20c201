package top

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/terminal"
)

// runScreen draws the screen until the user ends it.
func runScreen(ctx context.Context, p command.Program, w *watcher, interval time.Duration) error {
	s := &screen{interval: interval, look: func() tea.Msg {
		f, err := w.frame(ctx)
		return looked{f, err}
	}}
	_, err := tea.NewProgram(s, tea.WithContext(ctx), tea.WithInput(p.Stdin), tea.WithOutput(p.Stdout)).Run()
	switch {
	case s.err != nil:
		return s.err
	case ctx.Err() != nil, errors.Is(err, tea.ErrInterrupted):
		return nil // that is how it is ended
	}
	return err
}

// looked is the message that a look has ended, due that the next one is to begin.
type (
	looked struct {
		frame Frame
		err   error
	}
	due struct{}
)

// screen is what is drawn: the mounts, and below them all of the chosen one.
type screen struct {
	interval time.Duration
	look     tea.Cmd

	frame Frame
	err   error
	seen  bool // there is a frame
	help  bool

	// chosen is the mount point of the mount that is shown: it stays chosen while it is away.
	chosen string
	// from is the first line that is shown of those below the title.
	from          int
	width, height int
}

// Init implements [tea.Model].
func (s *screen) Init() tea.Cmd { return s.look }

// Update implements [tea.Model].
func (s *screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		s.width, s.height = msg.Width, msg.Height
		s.scroll(0)
	case looked:
		if s.err = msg.err; s.err != nil {
			return s, tea.Quit
		}
		s.frame, s.seen = msg.frame, true
		s.scroll(0)
		return s, tea.Tick(s.interval, func(time.Time) tea.Msg { return due{} })
	case due:
		return s, s.look
	case tea.KeyPressMsg:
		return s, s.key(msg.String())
	}
	return s, nil
}

// key does what a key says.
func (s *screen) key(name string) tea.Cmd {
	switch name {
	case "q", "ctrl+c":
		return tea.Quit
	case "?":
		s.help, s.from = !s.help, 0
	case "esc":
		s.help = false
	case "up", "k":
		s.scroll(-1)
	case "down", "j":
		s.scroll(1)
	case "pgup":
		s.scroll(-s.room())
	case "pgdown", "space":
		s.scroll(s.room())
	case "home":
		s.from = 0
	case "end":
		s.scroll(len(s.lines()))
	case "left", "shift+tab":
		s.choose(-1)
	case "right", "tab":
		s.choose(1)
	}
	return nil
}

// room is how many lines there are below the title.
func (s *screen) room() int { return max(s.height-1, 1) }

// scroll moves what is shown by n lines, as far as there are lines.
func (s *screen) scroll(n int) {
	s.from = max(min(s.from+n, len(s.lines())-s.room()), 0)
}

// choose chooses another mount, n further down.
func (s *screen) choose(n int) {
	if all := s.frame.Mounts; len(all) > 0 {
		i := (max(s.index(), 0) + n + len(all)) % len(all)
		s.chosen, s.from = all[i].MountPoint, 0
	}
}

// index returns where the chosen mount is among those that there are: the first, until one is
// chosen, and -1 while it is away.
func (s *screen) index() int {
	if s.chosen == "" {
		return 0
	}
	for i, m := range s.frame.Mounts {
		if m.MountPoint == s.chosen {
			return i
		}
	}
	return -1
}

// View implements [tea.Model].
func (s *screen) View() tea.View {
	v := tea.NewView(s.draw())
	v.AltScreen = true
	return v
}

// draw returns what is on the screen.
func (s *screen) draw() string {
	title := "pailfs top"
	if s.seen {
		title += s.frame.Time.Format(" 15:04:05") + fmt.Sprintf(", every %s", s.interval)
	}
	title += "  q quit  ? help"
	all := s.lines()
	if s.height == 0 {
		return title // nobody has said how much room there is
	}
	if len(all) > s.room() {
		title += fmt.Sprintf("  line %d of %d", s.from+1, len(all))
	}
	shown := all[min(s.from, len(all)):min(s.from+s.room(), len(all))]
	return strings.Join(append([]string{title}, shown...), "\n")
}

// lines returns all lines below the title.
func (s *screen) lines() []string {
	switch {
	case s.help:
		return []string{
			"  up, down     scroll by a line (k, j)",
			"  page keys    scroll by a page; home and end",
			"  left, right  choose another mount (shift-tab, tab)",
			"  ?            show and hide this",
			"  q            end (ctrl-c)",
			"",
			"Rates are over the time between the last two looks; latencies and shares marked so are",
			"since the daemon started. What the kernel has itself or reads in passthrough is not seen.",
		}
	case !s.seen:
		return []string{"looking at the mounts"}
	case len(s.frame.Mounts) == 0:
		return []string{"no mounts"}
	}
	var lines []string
	at := s.index()
	if len(s.frame.Mounts) > 1 || at < 0 {
		for i, m := range s.frame.Mounts {
			mark := "  "
			if i == at {
				mark = "> "
			}
			lines = append(lines, mark+terminal.Name(m.MountPoint)+"  "+m.Health+"  "+terminal.Name(m.Source))
		}
		lines = append(lines, "")
	}
	if at < 0 {
		return append(lines, terminal.Name(s.chosen)+": nothing is mounted there now")
	}
	return append(lines, text(s.frame.Mounts[at], s.frame.Time)...)
}
