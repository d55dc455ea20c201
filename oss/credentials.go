package oss

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

	"github.com/aliyun/credentials-go/credentials"

	"github.com/pailfs/pailfs/oss/internal/backoff"
)

// CredentialKind names a place where credentials come from.
type CredentialKind string

// The credential kinds.
const (
	// CredentialsAuto takes the first that is present of the environment, the file
	// and the default chain. It is the default.
	CredentialsAuto CredentialKind = "auto"
	// CredentialsEnvironment reads OSS_ACCESS_KEY_ID, OSS_ACCESS_KEY_SECRET and
	// OSS_SESSION_TOKEN once.
	CredentialsEnvironment CredentialKind = "environment"
	// CredentialsFile reads the JSON file of the OSS connector for AI/ML, again
	// whenever it changes.
	CredentialsFile CredentialKind = "file"
	// CredentialsStatic takes the values given in the configuration.
	CredentialsStatic CredentialKind = "static"
	// CredentialsECSRole asks the metadata service of the ECS instance.
	CredentialsECSRole CredentialKind = "ecs-ram-role"
	// CredentialsOIDC exchanges a service account's token for a role (RRSA).
	CredentialsOIDC CredentialKind = "oidc"
	// CredentialsChain is the default chain of Alibaba Cloud's SDKs.
	CredentialsChain CredentialKind = "default-chain"
	// CredentialsAnonymous does not sign.
	CredentialsAnonymous CredentialKind = "anonymous"
)

// CredentialsConfig says where credentials come from. The zero value is
// [CredentialsAuto].
type CredentialsConfig struct {
	// Kind is the place; empty means [CredentialsAuto].
	Kind CredentialKind
	// File is the path for [CredentialsFile]; empty means
	// ~/.alibabacloud/credentials. A file that others may read is refused.
	File string
	// AccessKeyID, AccessKeySecret and SecurityToken are for [CredentialsStatic];
	// the token is that of an STS session and may be empty.
	AccessKeyID     string
	AccessKeySecret string
	SecurityToken   string
	// RoleName is for [CredentialsECSRole]; empty means the instance's own role.
	RoleName string
	// RoleARN, OIDCProviderARN, OIDCTokenFile and STSEndpoint are for
	// [CredentialsOIDC]; empty means what the cluster put into the environment.
	RoleARN         string
	OIDCProviderARN string
	OIDCTokenFile   string
	STSEndpoint     string
	// RefuseTokens refuses keys with the token of a session, at the start and at every
	// renewal, with [ErrTokenExposed]. It is for endpoints that are [Exposed].
	RefuseTokens bool
}

// String names the kind only, so that a configuration can be logged.
func (c CredentialsConfig) String() string { return "credentials(" + string(c.kind()) + ")" }

// Format is String for every verb: %d must not show a secret either.
func (c CredentialsConfig) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// LogValue is String for slog.
func (c CredentialsConfig) LogValue() slog.Value { return slog.StringValue(c.String()) }

// MarshalText is String for encoders.
func (c CredentialsConfig) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

func (c CredentialsConfig) kind() CredentialKind {
	if c.Kind == "" {
		return CredentialsAuto
	}
	return c.Kind
}

const (
	envAccessKeyID     = "OSS_ACCESS_KEY_ID"
	envAccessKeySecret = "OSS_ACCESS_KEY_SECRET"
	envSessionToken    = "OSS_SESSION_TOKEN"
)

// keys are credentials as they were read. They are immutable, and the secrets are
// of a type that cannot be printed.
type keys struct {
	id      string
	secret  secret
	token   secret
	expires time.Time
	renewed time.Time
}

// A provider reads credentials from one place. read and forget are called by one
// goroutine at a time.
type provider interface {
	// read returns the keys that are valid now.
	read(ctx context.Context) (*keys, error)
	// changed says cheaply whether read would give something else now. Any goroutine
	// may call it.
	changed() bool
	// forget makes the next read ask anew rather than answer from memory.
	forget()
}

// CredentialSource holds the credentials that are valid now and renews them
// before they expire. It runs one goroutine until Close, and none for kinds that
// cannot change. It never shows a secret, however it is printed.
type CredentialSource struct {
	kind     CredentialKind
	log      *slog.Logger
	provider provider
	// refuseTokens: no keys with a token are ever in force.
	refuseTokens bool
	current      atomic.Pointer[keys]
	lastErr      atomic.Pointer[error]

	reading chan struct{} // holds a token while provider is called
	nudge   chan struct{} // asks the goroutine to renew now
	cancel  context.CancelFunc
	done    chan struct{}
}

// CredentialStatus is what may be shown of a source.
type CredentialStatus struct {
	Kind CredentialKind
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

// OpenCredentials reads credentials for the first time, so that what is missing
// or unreadable is said at once, and keeps them fresh until Close.
func OpenCredentials(cfg CredentialsConfig, log *slog.Logger) (*CredentialSource, error) {
	kind, p, err := newProvider(cfg)
	if err != nil {
		return nil, fmt.Errorf("open credentials (%s): %w", kind, err)
	}
	if p == nil {
		return &CredentialSource{kind: kind, log: log}, nil
	}
	s, err := openSourceOf(kind, p, cfg.RefuseTokens, log)
	switch {
	case err == nil:
		return s, nil
	case cfg.kind() == CredentialsAuto && kind == CredentialsChain && !errors.Is(err, ErrTokenExposed):
		return nil, fmt.Errorf("open credentials: none found: set %s and %s, or write ~/.alibabacloud/credentials, or choose a kind (default chain: %w)",
			envAccessKeyID, envAccessKeySecret, err)
	default:
		return nil, fmt.Errorf("open credentials (%s): %w", kind, err)
	}
}

// openSourceOf reads p for the first time and keeps its keys fresh.
func openSourceOf(kind CredentialKind, p provider, refuseTokens bool, log *slog.Logger) (*CredentialSource, error) {
	s := &CredentialSource{kind: kind, log: log, provider: p, refuseTokens: refuseTokens, reading: make(chan struct{}, 1)}
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
func newProvider(cfg CredentialsConfig) (CredentialKind, provider, error) {
	kind := cfg.kind()
	if kind == CredentialsAuto {
		var err error
		if kind, err = detectKind(cfg); err != nil {
			return kind, nil, err
		}
	}
	switch kind {
	case CredentialsEnvironment:
		p, err := environmentProvider()
		return kind, p, err
	case CredentialsFile:
		path, err := credentialsPath(cfg.File)
		return kind, &fileProvider{path: path}, err
	case CredentialsStatic:
		if cfg.AccessKeyID == "" || cfg.AccessKeySecret == "" {
			return kind, nil, errors.New("static credentials need an access key id and a secret")
		}
		return kind, constantProvider{keys{id: cfg.AccessKeyID, secret: newSecret(cfg.AccessKeySecret), token: newSecret(cfg.SecurityToken)}}, nil
	case CredentialsECSRole:
		c := new(credentials.Config).SetType("ecs_ram_role").SetRoleName(cfg.RoleName)
		return kind, &cloudProvider{config: c}, nil
	case CredentialsOIDC:
		c := new(credentials.Config).SetType("oidc_role_arn").SetRoleArn(cfg.RoleARN).SetOIDCProviderArn(cfg.OIDCProviderARN).
			SetOIDCTokenFilePath(cfg.OIDCTokenFile).SetSTSEndpoint(cfg.STSEndpoint).SetRoleSessionName("pailfs")
		return kind, &cloudProvider{config: c}, nil
	case CredentialsChain:
		return kind, &cloudProvider{}, nil
	case CredentialsAnonymous:
		return kind, nil, nil
	default:
		return kind, nil, fmt.Errorf("unknown kind %q", string(kind))
	}
}

// detectKind is the order of [CredentialsAuto].
func detectKind(cfg CredentialsConfig) (CredentialKind, error) {
	if cfg.AccessKeyID != "" {
		return CredentialsStatic, nil
	}
	if cfg.File != "" {
		return CredentialsFile, nil
	}
	if os.Getenv(envAccessKeyID) != "" || os.Getenv(envAccessKeySecret) != "" {
		return CredentialsEnvironment, nil
	}
	path, err := credentialsPath("")
	if err == nil && looksLikeJSON(path) {
		return CredentialsFile, nil
	}
	return CredentialsChain, nil
}

func environmentProvider() (provider, error) {
	k := keys{
		id:     strings.TrimSpace(os.Getenv(envAccessKeyID)),
		secret: newSecret(strings.TrimSpace(os.Getenv(envAccessKeySecret))),
		token:  newSecret(strings.TrimSpace(os.Getenv(envSessionToken))),
	}
	switch {
	case k.id == "":
		return nil, fmt.Errorf("environment variable %s is empty", envAccessKeyID)
	case k.secret.empty():
		return nil, fmt.Errorf("environment variable %s is empty", envAccessKeySecret)
	}
	return constantProvider{k}, nil
}

// constantProvider gives keys that never change.
type constantProvider struct{ k keys }

func (p constantProvider) read(context.Context) (*keys, error) {
	k := p.k
	return &k, nil
}

func (p constantProvider) changed() bool { return false }

func (p constantProvider) forget() {}

// get returns the keys to sign with, nil for anonymous.
func (s *CredentialSource) get() *keys {
	if s == nil {
		return nil
	}
	return s.current.Load()
}

// Kind returns where the credentials come from, after [CredentialsAuto] has been
// resolved.
func (s *CredentialSource) Kind() CredentialKind {
	if s == nil {
		return CredentialsAnonymous
	}
	return s.kind
}

// Status returns what may be shown.
func (s *CredentialSource) Status() CredentialStatus {
	st := CredentialStatus{Kind: s.Kind()}
	if k := s.get(); k != nil {
		st.AccessKeyID, st.Expires, st.Renewed = shorten(k.id), k.expires, k.renewed
	}
	if s != nil {
		if err := s.lastErr.Load(); err != nil {
			st.Err = *err
		}
	}
	return st
}

// String names the kind and the shortened key id.
func (s *CredentialSource) String() string { return "credentials(" + s.describe() + ")" }

// describe is for sentences: "file credentials LTAI…abcd".
func (s *CredentialSource) describe() string {
	st := s.Status()
	return strings.TrimSpace(string(st.Kind) + " credentials " + st.AccessKeyID)
}

// Format is String for every verb.
func (s *CredentialSource) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// LogValue is String for slog.
func (s *CredentialSource) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText is String for encoders.
func (s *CredentialSource) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Close stops the renewal and waits for it to end. Requests go on with what is
// known.
func (s *CredentialSource) Close() error {
	if s.cancel != nil {
		s.cancel()
		<-s.done
	}
	return nil
}

// lock gives the right to call the provider.
func (s *CredentialSource) lock(ctx context.Context) error {
	select {
	case s.reading <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *CredentialSource) unlock() { <-s.reading }

// renew reads the keys and puts them in force; anew makes the provider ask rather
// than remember.
func (s *CredentialSource) renew(ctx context.Context, anew bool) error {
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
func (s *CredentialSource) read(ctx context.Context) error {
	k, err := s.provider.read(ctx)
	if err == nil && s.refuseTokens && !k.token.empty() {
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
func renewAt(k *keys) time.Time {
	if k.expires.IsZero() {
		return k.renewed.Add(unknownExpiryInterval)
	}
	life := k.expires.Sub(k.renewed)
	return k.expires.Add(-min(renewMargin, life/5))
}

// keepFresh renews the keys before they expire, when their place changes, and
// when a request was refused because of them.
func (s *CredentialSource) keepFresh(ctx context.Context) {
	defer close(s.done)
	var failures int
	var lastForced time.Time
	next := renewAt(s.get())
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
			s.log.Error("renewing credentials failed", "kind", s.kind, "err", err, "expires", s.get().expires)
			continue
		}
		if failures > 0 {
			s.log.Info("credentials renewed", "kind", s.kind, "after_failures", failures)
		}
		failures = 0
		// A place that keeps giving keys that are about to end is asked at a calm pace.
		next = renewAt(s.get())
		if soon := time.Now().Add(changeInterval); next.Before(soon) {
			next = soon
		}
	}
}

// refreshed is called when the server refused used. It returns true if other
// keys are in force now, so that signing again may help, and asks for a renewal
// if not.
func (s *CredentialSource) refreshed(ctx context.Context, used *keys) bool {
	if s == nil || s.done == nil {
		return false
	}
	if !sameKeys(s.get(), used) {
		return true
	}
	// Whoever is reading now may be about to put newer keys in force.
	if s.lock(ctx) != nil {
		return false
	}
	defer s.unlock()
	if !sameKeys(s.get(), used) {
		return true
	}
	if s.provider.changed() && s.read(ctx) == nil {
		return !sameKeys(s.get(), used)
	}
	select {
	case s.nudge <- struct{}{}:
	default:
	}
	return false
}

// explain adds to a refusal of the keys why there are no newer ones.
func (s *CredentialSource) explain(f *failure) error {
	if err := s.Status().Err; err != nil {
		return fmt.Errorf("%w (newer credentials could not be had: %v)", f, err) //nolint:errorlint // the server's refusal is what callers ask for
	}
	return f
}

func sameKeys(a, b *keys) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.id == b.id && a.secret.equal(b.secret) && a.token.equal(b.token)
}

// redact removes the known secrets from an error's text. The error's kind is
// lost with it; nobody tests for the kind of a renewal's failure.
func (s *CredentialSource) redact(err error) error {
	text := s.redactText(err.Error())
	if text == err.Error() {
		return err
	}
	return errors.New(text)
}

func (s *CredentialSource) redactText(text string) string {
	k := s.get()
	if k == nil {
		return text
	}
	for _, hidden := range []string{k.secret.reveal(), k.token.reveal()} {
		if len(hidden) >= 8 {
			text = strings.ReplaceAll(text, hidden, hiddenSecret)
		}
	}
	return text
}
