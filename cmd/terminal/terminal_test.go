package terminal

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// openTerminal returns both ends of a pseudoterminal: what a user has, and what a program has.
func openTerminal(t *testing.T) (user, program *os.File) {
	t.Helper()
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = user.Close() })
	if err := unix.IoctlSetPointerInt(int(user.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(user.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Close() })
	return user, program
}

// shown returns what the program has written to the terminal up to now.
func shown(t *testing.T, user *os.File) string {
	t.Helper()
	buffer := make([]byte, 1<<16)
	n, err := user.Read(buffer)
	if err != nil {
		t.Fatal(err)
	}
	return string(buffer[:n])
}

func TestProgressIsShownAtATerminal(t *testing.T) {
	user, out := openTerminal(t)
	for what, p := range map[string]*Progress{"things": NewProgress(out), "bytes": NewByteProgress(out)} {
		p.Show("sorting "+what, 3, 1000)
		p.Show("sorting "+what, 1500, 2000) // more is known now
		p.Clear()
		if text := shown(t, user); !strings.Contains(text, "sorting "+what) {
			t.Errorf("%s: the terminal shows %q", what, text)
		}
	}
}

func TestNothingIsShownElsewhere(t *testing.T) {
	var out bytes.Buffer
	p := NewByteProgress(&out)
	p.Show("sorting", 3, 9)
	stop := p.Watch(func(*Progress) { t.Error("somebody looks") })
	stop()
	p.Clear()
	if out.Len() != 0 || Columns(&out) != 0 {
		t.Errorf("%q was written, %d columns", &out, Columns(&out))
	}
}

func TestOnlyYesAtATerminalAgrees(t *testing.T) {
	for answer, want := range map[string]bool{"y\n": true, " Y \n": true, "n\n": false, "\n": false, "yes\n": false} {
		user, program := openTerminal(t)
		if _, err := user.WriteString(answer); err != nil {
			t.Fatal(err)
		}
		if got := Agrees(program, program, "Do it?"); got != want {
			t.Errorf("%q agrees: %t", answer, got)
		}
	}
	var out bytes.Buffer
	if Agrees(strings.NewReader("y\n"), &out, "Do it?") || out.Len() != 0 {
		t.Errorf("a script was asked %q", &out)
	}
}

func TestTerminalsHaveColumns(t *testing.T) {
	_, program := openTerminal(t)
	for columns, want := range map[uint16]int{120: 120, 7: someColumns, 0: someColumns} {
		if err := unix.IoctlSetWinsize(int(program.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}); err != nil {
			t.Fatal(err)
		}
		if got := Columns(program); got != want {
			t.Errorf("%d columns are %d, want %d", columns, got, want)
		}
	}
}

func TestNamesDoNotSteerTheTerminal(t *testing.T) {
	for path, want := range map[string]string{"": "/", "dir/file": "dir/file", "a\x1b[2J": `"a\x1b[2J"`, "b\xff": `"b\xff"`} {
		if got := Name(path); got != want {
			t.Errorf("%q is shown as %s, want %s", path, got, want)
		}
	}
}

func TestSentencesDoNotSteerTheTerminal(t *testing.T) {
	for text, want := range map[string]string{"it is \"so\"": "it is \"so\"", "put a\x1b[31m\n\tb\xff\u009b é": `put a\x1b[31m\n\tb\xff\u009b é`} {
		if got := Text(text); got != want {
			t.Errorf("%q is shown as %s, want %s", text, got, want)
		}
	}
}

func TestSizesHaveBinaryUnits(t *testing.T) {
	for bytes, want := range map[int64]string{-1: "0 B", 0: "0 B", 1536: "1.5 KiB", 64 << 20: "64 MiB"} {
		if got := Size(bytes); got != want {
			t.Errorf("%d is %q, want %q", bytes, got, want)
		}
	}
}
