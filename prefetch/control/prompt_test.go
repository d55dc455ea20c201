package control

import (
	"context"
	"errors"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

type promptParams struct {
	Wait  bool `json:"wait,omitempty"`
	Bytes int  `json:"bytes,omitempty"`
	Panic bool `json:"panic,omitempty"`
}

// promptMux has a method that tells its stack, or a text of some length.
func promptMux(t *testing.T) *Mux {
	m := newTestMux(t, MuxConfig{}, nil)
	HandlePrompt(m, "prompt", Anyone, func(p promptParams) bool { return p.Wait }, func(_ context.Context, _ Caller, p promptParams) (string, error) {
		switch {
		case p.Panic:
			panic("a mistake")
		case p.Bytes > 0:
			return strings.Repeat("x", p.Bytes), nil
		}
		return string(debug.Stack()), nil
	})
	return m
}

func TestPromptMethodsRunInTheIoctl(t *testing.T) {
	c := clientOf(promptMux(t), stranger)
	for _, wait := range []bool{false, true} {
		var stack string
		if err := c.Call(t.Context(), "prompt", promptParams{Wait: wait}, &stack); err != nil {
			t.Fatal(err)
		}
		if inside := strings.Contains(stack, ").ServeControl("); inside == wait {
			t.Errorf("waits %v, ran in the ioctl %v", wait, inside)
		}
	}
}

func TestPromptMethodsAreAnsweredLikeOthers(t *testing.T) {
	m := promptMux(t)
	c := clientOf(m, stranger)
	for _, size := range []int{1, MaxPayload - 13, MaxPayload - 12, 100_000} {
		var got string
		if err := c.Call(t.Context(), "prompt", promptParams{Bytes: size}, &got); err != nil || len(got) != size {
			t.Errorf("%d bytes arrived as %d, %v", size, len(got), err)
		}
	}
	if err := c.Call(t.Context(), "prompt", promptParams{Panic: true}, nil); !errors.Is(err, &Error{Code: CodeInternal}) {
		t.Errorf("a panic is told as %v", err)
	}
	if got := testutil.ToFloat64(m.metrics.panics); got != 1 {
		t.Errorf("%v panics were counted, want 1", got)
	}
	if err := c.Call(t.Context(), "prompt", map[string]int{"weight": 1}, nil); !errors.Is(err, &Error{Code: CodeBadRequest}) {
		t.Errorf("an unknown parameter is told as %v", err)
	}
	assertNothingHeld(t, m)
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.Call(t.Context(), "prompt", nil, nil); !errors.Is(err, &Error{Code: CodeStopping}) {
		t.Errorf("after the end a call is told %v", err)
	}
}

func TestTheProcessIsAskedForWhereItIsWanted(t *testing.T) {
	asked := 0
	m := newTestMux(t, MuxConfig{ProcessOf: func(tid uint32) (uint32, []uint32) {
		asked++
		return tid + 1000, nil
	}}, nil)
	whoami := func(_ context.Context, c Caller, _ promptParams) (Caller, error) { return c, nil }
	HandlePrompt(m, "prompt", Anyone, nil, whoami)
	HandlePrompt(m, "prompt-owner", Owner, nil, whoami)
	HandlePrompt(m, "waits", Anyone, func(promptParams) bool { return true }, whoami)
	c := clientOf(m, Caller{TID: 7})
	for _, test := range []struct {
		method string
		pid    uint32
		asked  int
	}{{"prompt", 0, 0}, {"prompt-owner", 1007, 1}, {"waits", 1007, 2}, {"whoami", 1007, 3}} {
		var got Caller
		if err := c.Call(t.Context(), test.method, nil, &got); err != nil || got.PID != test.pid || asked != test.asked {
			t.Errorf("%s: %+v, %v, asked %d times, want process %d and %d", test.method, got, err, asked, test.pid, test.asked)
		}
	}
	var got Caller
	if err := clientOf(m, stranger).Call(t.Context(), "whoami", nil, &got); err != nil || got != stranger {
		t.Errorf("a caller without a thread is %+v, %v", got, err)
	}
}
