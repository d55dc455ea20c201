package mounting

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/wire"
)

const (
	// ecsMetadata is where every ECS instance asks about itself.
	ecsMetadata = "http://100.100.100.200"
	// spotPath says when a spot instance is taken back; there is nothing before it is
	// known. spotTokenPath gives the token that a hardened instance asks for.
	spotPath      = "/latest/meta-data/instance/spot/termination-time"
	spotTokenPath = "/latest/api/token"
	// spotPoll is how often it is asked, spotPatience how long it may take.
	spotPoll     = 2 * time.Second
	spotPatience = time.Second
)

// spotWatch asks whether this machine is about to be taken back.
type spotWatch struct {
	base   string
	client http.Client
	token  string
	// state is what is known, one of wire.SpotUnknown, wire.SpotNone and wire.SpotGiven.
	state atomic.Pointer[string]
}

// notice returns what is known, also where nobody is asked.
func (w *spotWatch) notice() string {
	if w == nil {
		return wire.SpotOff
	}
	if state := w.state.Load(); state != nil {
		return *state
	}
	return wire.SpotUnknown
}

// watchSpot drains when the machine is about to be taken back, where that is asked
// for.
func (d *Daemon) watchSpot() {
	base := d.Settings.SpotNotice
	switch base {
	case "off":
		return
	case "ecs":
		base = ecsMetadata
	}
	w := &spotWatch{base: strings.TrimSuffix(base, "/"), client: http.Client{Timeout: spotPatience}}
	d.spot = w
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.run(ctx, d.Log.Logger, func(at time.Time) { d.draining.begin("spot notice", at) })
	}()
	d.opens("spot notice", func() error {
		stop()
		<-ended
		w.client.CloseIdleConnections()
		return nil
	})
}

// run calls taken when the machine is taken back, and asks until ctx ends. That nobody answers is said once, until somebody does.
func (w *spotWatch) run(ctx context.Context, log *slog.Logger, taken func(at time.Time)) {
	tick := time.NewTicker(spotPoll)
	defer tick.Stop()
	failing := false
	for {
		at, err := w.ask(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !failing:
			log.Warn("cannot ask whether this machine is about to be taken back", "address", w.base, "error", command.OneLine(err))
		case err == nil && failing:
			log.Info("can ask again whether this machine is about to be taken back", "address", w.base)
		}
		failing = err != nil
		state := wire.SpotNone
		switch {
		case failing:
			state = wire.SpotUnknown
		case !at.IsZero():
			state = wire.SpotGiven
			taken(at)
		}
		w.state.Store(&state)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// errNoToken means that the metadata service wants a token.
var errNoToken = errors.New("a token is needed")

// ask returns when the machine is taken back, zero if that is not known.
func (w *spotWatch) ask(ctx context.Context) (time.Time, error) {
	text, err := w.get(ctx)
	if errors.Is(err, errNoToken) {
		if w.token, err = w.call(ctx, http.MethodPut, spotTokenPath, "X-aliyun-ecs-metadata-token-ttl-seconds", "21600"); err != nil {
			return time.Time{}, fmt.Errorf("get a token: %w", err)
		}
		text, err = w.get(ctx)
	}
	if err != nil || text == "" {
		return time.Time{}, err
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		// It says something: better too early than too late.
		return time.Now().Add(drainNotice), nil //nolint:nilerr // an answer of another form is a notice
	}
	return at, nil
}

func (w *spotWatch) get(ctx context.Context) (string, error) {
	return w.call(ctx, http.MethodGet, spotPath, "X-aliyun-ecs-metadata-token", w.token)
}

// call makes a request with one header, if that has a value. No answer is "".
func (w *spotWatch) call(ctx context.Context, method, path, header, value string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, method, w.base+path, http.NoBody)
	if err != nil {
		return "", err
	}
	if value != "" {
		request.Header.Set(header, value)
	}
	answer, err := w.client.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }() // only read
	text, err := io.ReadAll(io.LimitReader(answer.Body, 4096))
	switch {
	case err != nil:
		return "", err
	case answer.StatusCode == http.StatusNotFound:
		return "", nil
	case answer.StatusCode == http.StatusForbidden, answer.StatusCode == http.StatusUnauthorized:
		return "", fmt.Errorf("%w: %s", errNoToken, answer.Status)
	case answer.StatusCode != http.StatusOK:
		return "", errors.New(answer.Status)
	}
	return strings.TrimSpace(string(text)), nil
}
