package child

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

// verbs are what children of these tests do.
var verbs = map[string]Verb{
	"echo": func(_ context.Context, path string, request json.RawMessage) (any, error) {
		return []string{path, string(request)}, nil
	},
	"fail":    func(context.Context, string, json.RawMessage) (any, error) { return nil, errors.New("it did not work") },
	"die":     func(context.Context, string, json.RawMessage) (any, error) { panic("it broke") },
	"environ": func(context.Context, string, json.RawMessage) (any, error) { return os.Environ(), nil },
	"wait": func(ctx context.Context, _ string, _ json.RawMessage) (any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	},
	"talk": func(context.Context, string, json.RawMessage) (any, error) {
		_, _ = io.Copy(os.Stdout, endless{}) // it ends when nobody listens
		return nil, nil
	},
	"hang": func(context.Context, string, json.RawMessage) (any, error) { select {} },
}

// endless is a reader of letters without end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func TestMain(m *testing.M) {
	if code, served := Serve(os.Args, verbs); served {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

func TestAChildAnswers(t *testing.T) {
	var got []string
	if err := Run(t.Context(), "echo", "/a b\n", map[string]int{"n": 1}, &got); err != nil || len(got) != 2 || got[0] != "/a b\n" || got[1] != `{"n":1}` {
		t.Errorf("%q, %v", got, err)
	}
	for verb, want := range map[string]string{"fail": "it did not work", "die": "panic: it broke", "sing": "not for people"} {
		if err := Run(t.Context(), verb, "/", nil, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want something of %q", verb, err, want)
		}
	}
}

// TestAChildThatDoesNotWaitForItsRequestIsHeard: what it said says why.
func TestAChildThatDoesNotWaitForItsRequestIsHeard(t *testing.T) {
	p, err := start("sing", "/")
	if err != nil {
		t.Fatal(err)
	}
	defer p.leave()
	p.reap()
	p.converse([]byte("null"))
	if err := (<-p.said).read(nil); err == nil || !strings.Contains(err.Error(), "not for people") {
		t.Error(err)
	}
}

// TestAChildThatNeverEndsItsAnswerIsNotHeard for ever: whoever waits has a bound.
func TestAChildThatNeverEndsItsAnswerIsNotHeard(t *testing.T) {
	if err := Run(t.Context(), "talk", "/", nil, nil); err == nil || !strings.Contains(err.Error(), "it has more than 67108864 bytes") {
		t.Errorf("%.100v", err)
	}
}

// TestAChildHasNoKeys: none of the environment is its business.
func TestAChildHasNoKeys(t *testing.T) {
	t.Setenv("OSS_ACCESS_KEY_SECRET", "secret")
	var got []string
	if err := Run(t.Context(), "environ", "/", nil, &got); err != nil || len(got) != 0 {
		t.Errorf("it has %q, %v", got, err)
	}
}

// TestWhoHasNoTimeLeftIsTold: as one whose time ended while it waited, and without a child.
func TestWhoHasNoTimeLeftIsTold(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := Run(ctx, "hang", "/", nil, nil)
	left, ok := errors.AsType[*Abandoned](err)
	if !ok || !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	select {
	case <-left.Ended:
	default:
		t.Error("a child was begun")
	}
}

// TestAChildForWhichNobodyWaitsEnds: one that can be told, and one that cannot.
func TestAChildForWhichNobodyWaitsEnds(t *testing.T) {
	for _, verb := range []string{"wait", "hang"} {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, cancel)
		err := Run(ctx, verb, "/", nil, nil)
		left, ok := errors.AsType[*Abandoned](err)
		if !ok || !errors.Is(err, context.Canceled) {
			t.Fatalf("%s: %v", verb, err)
		}
		select {
		case <-left.Ended:
		case <-time.After(time.Minute):
			t.Errorf("%s: it goes on", verb)
		}
	}
}
