package keep

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pailfs/pailfs/prefetch/rights"
	"github.com/pailfs/pailfs/prefetch/session"
)

var one = session.Key{UID: 7, Task: "task"}

func TestSessionFilesThatAreDamagedAreRefusedOrCutShort(t *testing.T) {
	held := []session.Held{{Path: "a"}, {Path: "b", Index: 2, Seq: 1}, {Folder: "d/e/", Path: "c"}, {Folder: "f/", Path: "c"}, {Folder: "d/e/", Path: "g"}}
	good, err := encodeSession(savedHeader{Key: one}, session.Params{Buffer: 5, Lease: time.Minute}, held, time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	s, err := decodeSession(good)
	if err != nil || !slices.Equal(s.Held, held) || s.params().Lease != time.Minute || s.params().Buffer != 5 {
		t.Errorf("%+v, %v", s, err)
	}
	lines := strings.SplitAfter(string(good), "\n")
	for text, want := range map[string]int{
		lines[0] + lines[1]:                                           1,
		lines[0] + lines[1] + lines[2][:7]:                            1,
		lines[0] + `{"path":"../x"}`:                                  -1,
		strings.Join(lines[:7], ""):                                   4,
		lines[0] + `{"path":"a","in":1}`:                              -1,
		lines[0] + `{"path":"a","in":-1}`:                             -1,
		lines[0] + `{"folder":"d"}`:                                   -1,
		lines[0] + `{"folder":"../"}`:                                 -1,
		lines[0] + `{"folder":"d/"}` + "\n" + `{"path":"","in":1}`:    -1,
		lines[0] + `{"folder":"d/"}` + "\n" + `{"path":"a/b","in":1}`: -1,
		`{"pailfs_session":1}` + "\n" + `{"path":"d/e/c"}`:            1,
		lines[0] + `{"path":"a","index":-1}`:                          -1,
		"":                                                            -1,
		"{}":                                                          -1,
		"PNG":                                                         -1,
		`{"pailfs_session":99}` + "\n" + lines[1]:                     -1,
	} {
		s, err := decodeSession([]byte(text))
		if want < 0 && err == nil || want >= 0 && (err != nil || len(s.Held) != want) {
			t.Errorf("%q: %+v, %v", text, s, err)
		}
	}
}

func FuzzDecodeSession(f *testing.F) {
	good, err := encodeSession(savedHeader{Key: one}, session.Params{Buffer: 5}, []session.Held{{Path: "a"}}, time.Unix(0, 0))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := decodeSession(data)
		if err != nil {
			return
		}
		for _, h := range s.Held {
			if rights.CheckPath(h.Folder+h.Path) != nil {
				t.Errorf("took the path %q", h.Folder+h.Path)
			}
		}
	})
}
