package oss

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync/atomic"

	sdk "github.com/aliyun/aliyun-oss-go-sdk/oss"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pailfs/pailfs/oss/credentials"
	"github.com/pailfs/pailfs/oss/limiter"
)

// Client speaks to one bucket. Use [Client.As] to make requests.
type Client struct {
	cfg       Config
	endpoint  *url.URL
	log       *slog.Logger
	limiter   *limiter.Limiter
	metrics   *metrics
	timing    timing
	transport *http.Transport
	// conn signs and frames all requests but ranged GETs and HEADs, which reads makes.
	conn  *sdk.Conn
	reads *readSigner

	latency  [numLatencyKinds]latencyEstimate
	hedging  hedgeBudget
	inflight inflightSet
	access   *accessWatch
	// closing is closed by Close, which also calls endLife.
	closing <-chan struct{}
	endLife context.CancelFunc
	// complained is when a failing service was last logged, in Unix nanoseconds.
	complained atomic.Int64
}

// Open returns a client after checking cfg; it makes no request, for which see
// [Client.Preflight]. shared limits the requests of all that use the same service; nil
// means a limiter of its own. reg and log may be nil. The client must be closed.
func Open(cfg Config, shared *limiter.Limiter, reg prometheus.Registerer, log *slog.Logger) (*Client, error) {
	c, err := open(cfg, shared, reg, log)
	if err != nil {
		return nil, fmt.Errorf("open object store: %w", err)
	}
	return c, nil
}

func open(cfg Config, shared *limiter.Limiter, reg prometheus.Registerer, log *slog.Logger) (*Client, error) {
	endpoint, err := cfg.validate()
	if err != nil {
		return nil, err
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if shared == nil {
		if shared, err = limiter.New(limiter.Config{}, reg); err != nil {
			return nil, err
		}
	}
	life, endLife := context.WithCancel(context.Background())
	c := &Client{
		cfg:      cfg,
		endpoint: endpoint,
		log:      log,
		limiter:  shared,
		timing:   defaultTiming(),
		reads:    newReadSigner(endpoint, &cfg),
		hedging:  hedgeBudget{share: cfg.hedgeShare()},
		closing:  life.Done(),
		endLife:  endLife,
	}
	c.access = &accessWatch{log: log, every: c.timing.complain}
	if c.transport, err = newTransport(life, &cfg); err == nil {
		anonymous := cfg.Credentials.Kind() == credentials.Anonymous
		c.conn, err = newConn(&cfg, endpoint, sdkTransport{c.transport, anonymous})
	}
	if err == nil {
		c.metrics, err = newMetrics(reg, cfg.Credentials, c.access)
	}
	if err != nil {
		endLife()
		return nil, err
	}
	return c, nil
}

// newConn sets up the SDK to sign and frame, and to leave the rest alone.
func newConn(cfg *Config, endpoint *url.URL, transport http.RoundTripper) (*sdk.Conn, error) {
	options := []sdk.ClientOption{
		sdk.HTTPClient(&http.Client{
			Transport: transport,
			// A redirected request would carry a signature for another host.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}),
		sdk.SetCredentialsProvider(sdkCredentials{cfg.Credentials}),
		sdk.UserAgent(userAgent),
		sdk.EnableCRC(false), // done here, where a retry can rewind
		sdk.EnableMD5(false),
		sdk.UseCname(cfg.CNAME),
		sdk.ForcePathStyle(cfg.PathStyle),
	}
	if cfg.Region != "" {
		options = append(options, sdk.AuthVersion(sdk.AuthV4), sdk.Region(cfg.Region))
	}
	client, err := sdk.New(endpoint.String(), "", "", options...)
	if err != nil {
		return nil, fmt.Errorf("set up the SDK: %w", err)
	}
	return client.Conn, nil
}

// sdkCredentials shows a source to the SDK.
type sdkCredentials struct{ source *credentials.Source }

// GetCredentials implements sdk.CredentialsProvider.
func (s sdkCredentials) GetCredentials() sdk.Credentials {
	k := s.source.Keys()
	if k == nil {
		k = &credentials.Keys{}
	}
	return sdkKeys{k}
}

// sdkKeys shows keys to the SDK.
type sdkKeys struct{ *credentials.Keys }

// GetAccessKeyID implements sdk.Credentials.
func (k sdkKeys) GetAccessKeyID() string { return k.ID }

// GetAccessKeySecret implements sdk.Credentials.
func (k sdkKeys) GetAccessKeySecret() string { return k.Secret.Reveal() }

// GetSecurityToken implements sdk.Credentials.
func (k sdkKeys) GetSecurityToken() string { return k.Token.Reveal() }

// Close ends what the client runs and closes its connections. Calls in progress
// fail with [ErrUnavailable]. It does not close the credentials.
func (c *Client) Close() error {
	c.endLife()
	c.inflight.close()
	c.transport.CloseIdleConnections()
	return nil
}
