package detached

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/pailfs/pailfs/cmd/internal/command"
)

func TestAProcessWithoutAParentTellsNobody(t *testing.T) {
	link, err := LinkToParent([]string{"PATH=/bin", detachedEnv + "=0"})
	if err != nil || link != nil {
		t.Fatalf("%v, %v", link, err)
	}
	link.Ready()
	if link.Notice("hello") || link.Fail(errors.New("no")) {
		t.Error("somebody was told")
	}
}

func TestTheParentWaitsForTheOutcome(t *testing.T) {
	for name, c := range map[string]struct {
		said     []message
		code     int
		want     string
		notified string
	}{
		"ready":            {[]message{{Notice: "replaced"}, {Ready: true}}, command.OK, "", "pailfs: replaced\n"},
		"refused":          {[]message{{Error: "no endpoint is set", Code: command.Refused}}, command.Refused, "no endpoint is set", ""},
		"died in the dark": {nil, command.Failed, "the daemon ended before it was ready (exit status 0): it said nothing", ""},
	} {
		t.Run(name, func(t *testing.T) {
			read, write, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("true")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			for _, m := range c.said {
				if err := json.NewEncoder(write).Encode(m); err != nil {
					t.Fatal(err)
				}
			}
			if err := write.Close(); err != nil {
				t.Fatal(err)
			}
			var notices bytes.Buffer
			err = (&child{cmd: cmd, report: read, stderr: new(bytes.Buffer)}).wait(&notices)
			if command.Code(err) != c.code || notices.String() != c.notified || err != nil && err.Error() != c.want {
				t.Errorf("code %d, %v, notices %q", command.Code(err), err, &notices)
			}
			_ = cmd.Wait() // of one that is ready
		})
	}
}

func TestWhatTheDaemonSaysIsCutOff(t *testing.T) {
	var kept strings.Builder
	w := &cappedWriter{to: &kept, left: 5}
	for _, text := range []string{"abc", "def", "ghi"} {
		if n, err := w.Write([]byte(text)); n != len(text) || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	if kept.String() != "abcde" {
		t.Errorf("kept %q", &kept)
	}
}
