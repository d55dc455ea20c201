package credentials

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	cloud "github.com/aliyun/credentials-go/credentials"

	"github.com/pailfs/pailfs/oss/internal/backoff"
)

// Kind names a place where credentials come from.
type Kind string

// The credential kinds.
const (
	// Auto takes the first that is present of the environment, the file
	// and the default chain. It is the default.
	Auto Kind = "auto"
	// Environment reads OSS_ACCESS_KEY_ID, OSS_ACCESS_KEY_SECRET and
	// OSS_SESSION_TOKEN once.
	Environment Kind = "environment"
	// File reads the JSON file of the OSS connector for AI/ML, again
	// whenever it changes.
	File Kind = "file"
	// Static takes the values given in the configuration.
	Static Kind = "static"
	// ECSRole asks the metadata service of the ECS instance.
	ECSRole Kind = "ecs-ram-role"
	// OIDC exchanges a service account's token for a role (RRSA).
	OIDC Kind = "oidc"
	// Chain is the default chain of Alibaba Cloud's SDKs.
	Chain Kind = "default-chain"
	// Anonymous does not sign.
	Anonymous Kind = "anonymous"
)

// Config says where credentials come from. The zero value is [Auto].
type Config struct {
	// Kind is the place; empty means [Auto].
	Kind Kind
	// File is the path for [File]; empty means
	// ~/.alibabacloud/credentials. A file that others may read is refused.
	File string
	// AccessKeyID, AccessKeySecret and SecurityToken are for [Static];
	// the token is that of an STS session and may be empty.
	AccessKeyID     string
	AccessKeySecret string
	SecurityToken   string
	// RoleName is for [ECSRole]; empty means the instance's own role.
	RoleName string
	// RoleARN, OIDCProviderARN, OIDCTokenFile and STSEndpoint are for
	// [OIDC]; empty means what the cluster put into the environment.
	RoleARN         string
	OIDCProviderARN string
	OIDCTokenFile   string
	STSEndpoint     string
	// RefuseTokens refuses keys with the token of a session, at the start and at every
	// renewal, with [ErrTokenExposed]. It is for endpoints that are [Exposed].
	RefuseTokens bool
}

// String names the kind only, so that a configuration can be logged.
func (c Config) String() string { return "credentials(" + string(c.kind()) + ")" }

// Format is String for every verb: %d must not show a secret either.
func (c Config) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// LogValue is String for slog.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

// MarshalText is String for encoders.
func (c Config) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

func (c Config) kind() Kind {
	if c.Kind == "" {
		return Auto
	}
	return c.Kind
}

const (
	envAccessKeyID     = "OSS_ACCESS_KEY_ID"
	envAccessKeySecret = "OSS_ACCESS_KEY_SECRET"
	envSessionToken    = "OSS_SESSION_TOKEN"
)

// Keys are credentials as they were read. They are immutable, and the secrets are
// of a type that cannot be printed.
type Keys struct {
	ID string
	// Token is that of an STS session, empty for keys that are not of one.
	Secret, Token Secret
	expires       time.Time
	renewed       time.Time
}

// A provider reads credentials from one place. read and forget are called by one
// goroutine at a time.
type provider interface {
	// read returns the keys that are valid now.
	read(ctx context.Context) (*Keys, error)
	// changed says cheaply whether read would give something else now. Any goroutine
	// may call it.
	changed() bool
	// forget makes the next read ask anew rather than answer from memory.
	forget()
}

// Source holds the credentials that are valid now and renews them
// before they expire. It runs one goroutine until Close, and none for kinds that
// cannot change. It never shows a secret, however it is printed.
type Source struct {
	kind     Kind
	log      *slog.Logger
	provider provider
	// refuseTokens: no keys with a token are ever in force.
	refuseTokens bool
	current      atomic.Pointer[Keys]
	lastErr      atomic.Pointer[error]

	reading chan struct{} // holds a token while provider is called
	nudge   chan struct{} // asks the goroutine to renew now
	cancel  context.CancelFunc
	done    chan struct{}
}

// Status is what may be shown of a source.
type Status struct {
	Kind Kind
	// AccessKeyID is shortened to its first and last characters.
	AccessKeyID string
	// Expires is the zero time if the credentials do not expire, or if the place
	// they come from does not say when.
	Expires time.Time
	// Renewed is when the values were last read.
	Renewed time.Time
	// Err is why the last renewal failed, nil if it did not.
	Err error
}

// Open reads credentials for the first time, so that what is missing
// or unreadable is said at once, and keeps them fresh until Close.
func Open(cfg Config, log *slog.Logger) (*Source, error) {
	kind, p, err := newProvider(cfg)
	if err != nil {
		return nil, fmt.Errorf("open credentials (%s): %w", kind, err)
	}
	if p == nil {
		return &Source{kind: kind, log: log}, nil
	}
	s, err := openSourceOf(kind, p, cfg.RefuseTokens, log)
	switch {
	case err == nil:
		return s, nil
	case cfg.kind() == Auto && kind == Chain && !errors.Is(err, ErrTokenExposed):
		return nil, fmt.Errorf("open credentials: none found: set %s and %s, or write ~/.alibabacloud/credentials, or choose a kind (default chain: %w)",
			envAccessKeyID, envAccessKeySecret, err)
	default:
		return nil, fmt.Errorf("open credentials (%s): %w", kind, err)
	}
}

// openSourceOf reads p for the first time and keeps its keys fresh.
func openSourceOf(kind Kind, p provider, refuseTokens bool, log *slog.Logger) (*Source, error) {
	s := &Source{kind: kind, log: log, provider: p, refuseTokens: refuseTokens, reading: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	if err := s.renew(ctx, false); err != nil {
		cancel()
		return nil, err
	}
	if _, constant := p.(constantProvider); constant {
		cancel()
		return s, nil
	}
	s.cancel = cancel
	s.nudge = make(chan struct{}, 1)
	s.done = make(chan struct{})
	go s.keepFresh(ctx)
	return s, nil
}

// newProvider resolves the kind. A nil provider means anonymous.
func newProvider(cfg Config) (Kind, provider, error) {
	kind := cfg.kind()
	if kind == Auto {
		var err error
		if kind, err = detectKind(cfg); err != nil {
			return kind, nil, err
		}
	}
	switch kind {
	case Environment:
		p, err := environmentProvider()
		return kind, p, err
	case File:
		path, err := credentialsPath(cfg.File)
		return kind, &fileProvider{path: path}, err
	case Static:
		if cfg.AccessKeyID == "" || cfg.AccessKeySecret == "" {
			return kind, nil, errors.New("static credentials need an access key id and a secret")
		}
		return kind, constantProvider{Keys{ID: cfg.AccessKeyID, Secret: newSecret(cfg.AccessKeySecret), Token: newSecret(cfg.SecurityToken)}}, nil
	case ECSRole:
		c := new(cloud.Config).SetType("ecs_ram_role").SetRoleName(cfg.RoleName)
		return kind, &cloudProvider{config: c}, nil
	case OIDC:
		c := new(cloud.Config).SetType("oidc_role_arn").SetRoleArn(cfg.RoleARN).SetOIDCProviderArn(cfg.OIDCProviderARN).
			SetOIDCTokenFilePath(cfg.OIDCTokenFile).SetSTSEndpoint(cfg.STSEndpoint).SetRoleSessionName("pailfs")
		return kind, &cloudProvider{config: c}, nil
	case Chain:
		return kind, &cloudProvider{}, nil
	case Anonymous:
		return kind, nil, nil
	default:
		return kind, nil, fmt.Errorf("unknown kind %q", string(kind))
	}
}

// detectKind is the order of [Auto].
func detectKind(cfg Config) (Kind, error) {
	if cfg.AccessKeyID != "" {
		return Static, nil
	}
	if cfg.File != "" {
		return File, nil
	}
	if os.Getenv(envAccessKeyID) != "" || os.Getenv(envAccessKeySecret) != "" {
		return Environment, nil
	}
	path, err := credentialsPath("")
	if err == nil && looksLikeJSON(path) {
		return File, nil
	}
	return Chain, nil
}

func environmentProvider() (provider, error) {
	k := Keys{
		ID:     strings.TrimSpace(os.Getenv(envAccessKeyID)),
		Secret: newSecret(strings.TrimSpace(os.Getenv(envAccessKeySecret))),
		Token:  newSecret(strings.TrimSpace(os.Getenv(envSessionToken))),
	}
	switch {
	case k.ID == "":
		return nil, fmt.Errorf("environment variable %s is empty", envAccessKeyID)
	case k.Secret.Empty():
		return nil, fmt.Errorf("environment variable %s is empty", envAccessKeySecret)
	}
	return constantProvider{k}, nil
}

// constantProvider gives keys that never change.
type constantProvider struct{ k Keys }

func (p constantProvider) read(context.Context) (*Keys, error) {
	k := p.k
	return &k, nil
}

func (p constantProvider) changed() bool { return false }

func (p constantProvider) forget() {}

// Keys returns the keys to sign with, nil for anonymous.
func (s *Source) Keys() *Keys {
	if s == nil {
		return nil
	}
	return s.current.Load()
}

// Kind returns where the credentials come from, after [Auto] has been
// resolved.
func (s *Source) Kind() Kind {
	if s == nil {
		return Anonymous
	}
	return s.kind
}

// Status returns what may be shown.
func (s *Source) Status() Status {
	st := Status{Kind: s.Kind()}
	if k := s.Keys(); k != nil {
		st.AccessKeyID, st.Expires, st.Renewed = shorten(k.ID), k.expires, k.renewed
	}
	if s != nil {
		if err := s.lastErr.Load(); err != nil {
			st.Err = *err
		}
	}
	return st
}

// String names the kind and the shortened key id.
func (s *Source) String() string { return "credentials(" + s.Describe() + ")" }

// Describe is for sentences: "file credentials LTAI…abcd".
func (s *Source) Describe() string {
	st := s.Status()
	return strings.TrimSpace(string(st.Kind) + " credentials " + st.AccessKeyID)
}

// Format is String for every verb.
func (s *Source) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// LogValue is String for slog.
func (s *Source) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText is String for encoders.
func (s *Source) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Close stops the renewal and waits for it to end. Requests go on with what is
// known.
func (s *Source) Close() error {
	if s.cancel != nil {
		s.cancel()
		<-s.done
	}
	return nil
}

// lock gives the right to call the provider.
func (s *Source) lock(ctx context.Context) error {
	select {
	case s.reading <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Source) unlock() { <-s.reading }

// renew reads the keys and puts them in force; anew makes the provider ask rather
// than remember.
func (s *Source) renew(ctx context.Context, anew bool) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.unlock()
	if anew {
		s.provider.forget()
	}
	return s.read(ctx)
}

// read is renew for the holder of the lock. Keys that are refused change nothing: those in
// force have no token, and are used until the server refuses them.
func (s *Source) read(ctx context.Context) error {
	k, err := s.provider.read(ctx)
	if err == nil && s.refuseTokens && !k.Token.Empty() {
		err = ErrTokenExposed
	}
	if err != nil {
		err = s.redact(err)
		s.lastErr.Store(&err)
		return err
	}
	k.renewed = time.Now()
	s.lastErr.Store(nil)
	s.current.Store(k)
	return nil
}

const (
	// changeInterval is how often a file is looked at.
	changeInterval = 5 * time.Second
	// renewMargin is how long before expiry keys are renewed. OSS needs them valid
	// when a request arrives; the rest is room for retries.
	renewMargin = 5 * time.Minute
	// unknownExpiryInterval is how often a place that hides its expiry is asked.
	// The cloud library answers from memory until three minutes before the end.
	unknownExpiryInterval = 30 * time.Second
	// forcedInterval is the least time between renewals because of refused requests.
	forcedInterval = 10 * time.Second
)

// renewAt says when keys that were read at k.renewed should be read again.
func renewAt(k *Keys) time.Time {
	if k.expires.IsZero() {
		return k.renewed.Add(unknownExpiryInterval)
	}
	life := k.expires.Sub(k.renewed)
	return k.expires.Add(-min(renewMargin, life/5))
}

// keepFresh renews the keys before they expire, when their place changes, and
// when a request was refused because of them.
func (s *Source) keepFresh(ctx context.Context) {
	defer close(s.done)
	var failures int
	var lastForced time.Time
	next := renewAt(s.Keys())
	for {
		wait := min(time.Until(next), changeInterval)
		timer := time.NewTimer(max(wait, 0))
		forced := false
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		case <-s.nudge:
			timer.Stop()
			// A right that is missing for good must not become a stream of renewals.
			forced = time.Since(lastForced) > forcedInterval
		}
		if !forced && time.Now().Before(next) && !s.provider.changed() {
			continue
		}
		if forced {
			lastForced = time.Now()
		}
		if err := s.renew(ctx, forced); err != nil {
			if ctx.Err() != nil {
				return
			}
			failures++
			next = time.Now().Add(backoff.Wait(failures, time.Second, time.Minute))
			s.log.Error("renewing credentials failed", "kind", s.kind, "err", err, "expires", s.Keys().expires)
			continue
		}
		if failures > 0 {
			s.log.Info("credentials renewed", "kind", s.kind, "after_failures", failures)
		}
		failures = 0
		// A place that keeps giving keys that are about to end is asked at a calm pace.
		next = renewAt(s.Keys())
		if soon := time.Now().Add(changeInterval); next.Before(soon) {
			next = soon
		}
	}
}

// Refreshed is called when the server refused used. It returns true if other
// keys are in force now, so that signing again may help, and asks for a renewal
// if not.
func (s *Source) Refreshed(ctx context.Context, used *Keys) bool {
	if s == nil || s.done == nil {
		return false
	}
	if !sameKeys(s.Keys(), used) {
		return true
	}
	// Whoever is reading now may be about to put newer keys in force.
	if s.lock(ctx) != nil {
		return false
	}
	defer s.unlock()
	if !sameKeys(s.Keys(), used) {
		return true
	}
	if s.provider.changed() && s.read(ctx) == nil {
		return !sameKeys(s.Keys(), used)
	}
	select {
	case s.nudge <- struct{}{}:
	default:
	}
	return false
}

// Explain adds to the server's refusal of the keys why there are no newer ones.
func (s *Source) Explain(refusal error) error {
	if err := s.Status().Err; err != nil {
		return fmt.Errorf("%w (newer credentials could not be had: %v)", refusal, err) //nolint:errorlint // the server's refusal is what callers ask for
	}
	return refusal
}

func sameKeys(a, b *Keys) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.ID == b.ID && a.Secret.equal(b.Secret) && a.Token.equal(b.Token)
}

// redact removes the known secrets from an error's text. The error's kind is
// lost with it; nobody tests for the kind of a renewal's failure.
func (s *Source) redact(err error) error {
	text := s.Redact(err.Error())
	if text == err.Error() {
		return err
	}
	return errors.New(text)
}

// Redact returns text without the known secrets.
func (s *Source) Redact(text string) string {
	k := s.Keys()
	if k == nil {
		return text
	}
	for _, hidden := range []string{k.Secret.Reveal(), k.Token.Reveal()} {
		if len(hidden) >= 8 {
			text = strings.ReplaceAll(text, hidden, hiddenSecret)
		}
	}
	return text
}
