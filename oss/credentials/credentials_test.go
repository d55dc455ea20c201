package credentials

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pailfs/pailfs/oss/internal/secrettest"
)

const (
	testID     = "LTAI5tTestTestTest"
	testSecret = "b4LTUdSecretSecretSecretSecret"
	testToken  = "CAISTokenTokenTokenTokenTokenToken"
)

// writeCredentials writes a connector file with mode.
func writeCredentials(t *testing.T, mode os.FileMode, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "credentials")
	replaceCredentials(t, path, mode, text)
	return path
}

// replaceCredentials replaces the file as a careful agent does: by rename.
func replaceCredentials(t *testing.T, path string, mode os.FileMode, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path+".new", mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func openSource(t *testing.T, cfg Config) *Source {
	t.Helper()
	s, err := Open(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func wantKeys(t *testing.T, s *Source, id, secret, token string) {
	t.Helper()
	k := s.Keys()
	if k == nil || k.ID != id || k.Secret.Reveal() != secret || k.Token.Reveal() != token {
		t.Fatalf("keys of %v are not %s", s, id)
	}
}

// noCredentials clears the environment of what a source looks for.
func noCredentials(t *testing.T) {
	t.Helper()
	for _, name := range []string{envAccessKeyID, envAccessKeySecret, envSessionToken} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", t.TempDir())
}

func TestCredentialsFromTheEnvironment(t *testing.T) {
	noCredentials(t)
	if _, err := Open(Config{Kind: Environment}, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), envAccessKeyID) {
		t.Errorf("without variables: %v", err)
	}
	t.Setenv(envAccessKeyID, testID)
	if _, err := Open(Config{}, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), envAccessKeySecret) {
		t.Errorf("with half of them: %v", err)
	}
	t.Setenv(envAccessKeySecret, testSecret)
	s := openSource(t, Config{})
	wantKeys(t, s, testID, testSecret, "")
	if s.Kind() != Environment {
		t.Errorf("kind is %s", s.Kind())
	}
	t.Setenv(envSessionToken, testToken)
	wantKeys(t, openSource(t, Config{Kind: Environment}), testID, testSecret, testToken)
}

func TestCredentialsFromTheConnectorsFile(t *testing.T) {
	noCredentials(t)
	dir := filepath.Join(os.Getenv("HOME"), ".alibabacloud")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`{"AccessKeyId": %q, "AccessKeySecret": %q}`, testID, testSecret)
	if err := os.WriteFile(filepath.Join(dir, "credentials"), []byte(text), 0o400); err != nil {
		t.Fatal(err)
	}
	s := openSource(t, Config{})
	wantKeys(t, s, testID, testSecret, "")
	if s.Kind() != File || !s.Status().Expires.IsZero() {
		t.Errorf("status is %+v", s.Status())
	}
	path := writeCredentials(t, 0o600, fmt.Sprintf(`{"AccessKeyId": %q, "AccessKeySecret": %q, "SecurityToken": %q, "Expiration": "2099-08-02T15:04:05Z"}`,
		testID, testSecret, testToken))
	s = openSource(t, Config{File: path})
	wantKeys(t, s, testID, testSecret, testToken)
	if want := time.Date(2099, 8, 2, 15, 4, 5, 0, time.UTC); !s.Status().Expires.Equal(want) {
		t.Errorf("expires %v, want %v", s.Status().Expires, want)
	}
}

func TestBadCredentialFilesAreRefused(t *testing.T) {
	noCredentials(t)
	good := fmt.Sprintf(`{"AccessKeyId": %q, "AccessKeySecret": %q}`, testID, testSecret)
	for name, test := range map[string]struct {
		mode os.FileMode
		text string
		want string
	}{
		"readable by the group":  {0o640, good, "chmod 600"},
		"readable by the world":  {0o604, good, "chmod 600"},
		"writable by the world":  {0o602, good, "chmod 600"},
		"no JSON":                {0o600, "AccessKeyId = " + testSecret, "not JSON"},
		"no id":                  {0o600, fmt.Sprintf(`{"AccessKeySecret": %q}`, testSecret), "no AccessKeyId"},
		"no secret":              {0o600, fmt.Sprintf(`{"AccessKeyId": %q}`, testID), "no AccessKeySecret"},
		"a secret of wrong type": {0o600, fmt.Sprintf(`{"AccessKeyId": %q, "AccessKeySecret": 12}`, testID), "not JSON"},
		"a bad expiration":       {0o600, fmt.Sprintf(`{"AccessKeyId": %q, "AccessKeySecret": %q, "Expiration": "soon"}`, testID, testSecret), "Expiration"},
		"empty":                  {0o600, "", "not JSON"},
		"huge":                   {0o600, good + strings.Repeat(" ", maxCredentialsFile), "larger than"},
	} {
		path := writeCredentials(t, test.mode, test.text)
		_, err := Open(Config{Kind: File, File: path}, slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error is %v, want one line that names the file and %q", name, err, test.want)
		}
		if err != nil && strings.Contains(err.Error(), testSecret) {
			t.Errorf("%s: the error shows the secret", name)
		}
	}
	if _, err := Open(Config{Kind: File, File: "/nonexistent/credentials"}, slog.New(slog.DiscardHandler)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	if _, err := Open(Config{Kind: File, File: t.TempDir()}, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a directory is accepted")
	}
	if _, err := Open(Config{Kind: "magic"}, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "magic") {
		t.Errorf("unknown kind: %v", err)
	}
	if _, err := Open(Config{Kind: Static, AccessKeyID: testID}, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("static keys without a secret are accepted")
	}
}

// fakeProvider gives keys that number themselves, in simulated time.
type fakeProvider struct {
	life  time.Duration
	reads atomic.Int32
	fail  atomic.Bool
	dirty atomic.Bool
	// plain keys have no token.
	plain atomic.Bool
}

func (p *fakeProvider) read(context.Context) (*Keys, error) {
	if p.fail.Load() {
		return nil, errors.New("metadata service is down; secret was " + testSecret)
	}
	p.dirty.Store(false)
	k := &Keys{ID: fmt.Sprintf("id-%d", p.reads.Add(1)), Secret: newSecret(testSecret), Token: newSecret(testToken)}
	if p.plain.Load() {
		k.Token = newSecret("")
	}
	if p.life > 0 {
		k.expires = time.Now().Add(p.life)
	}
	return k, nil
}

func (p *fakeProvider) changed() bool { return p.dirty.Load() }

func (p *fakeProvider) forget() {}

func startSource(t *testing.T, p provider, log *slog.Logger) *Source {
	t.Helper()
	s, err := openSourceOf(ECSRole, p, false, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestCredentialsAreRenewedBeforeTheyExpire(t *testing.T) {
	for _, life := range []time.Duration{time.Minute, time.Hour, 12 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			p := &fakeProvider{life: life}
			s := startSource(t, p, slog.New(slog.DiscardHandler))
			for end := time.Now().Add(4 * life); time.Now().Before(end); time.Sleep(life / 50) {
				if left := time.Until(s.Keys().expires); left <= 0 {
					t.Fatalf("life %v: keys are %v past their end", life, -left)
				}
			}
			if n := p.reads.Load(); n < 4 || n > 7 {
				t.Errorf("life %v: read %d times in four lives", life, n)
			}
		})
	}
}

func TestRenewalGoesOnAfterFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		p := &fakeProvider{life: time.Hour}
		s := startSource(t, p, slog.New(slog.NewTextHandler(&logged, nil)))
		p.fail.Store(true)
		time.Sleep(58 * time.Minute)
		if s.Status().Err == nil || s.Keys().ID != "id-1" {
			t.Errorf("status is %+v, want the old keys and the failure", s.Status())
		}
		p.fail.Store(false)
		time.Sleep(2 * time.Minute)
		if s.Status().Err != nil || s.Keys().ID != "id-2" {
			t.Errorf("status is %+v, want new keys", s.Status())
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		text := logged.String() + fmt.Sprint(s.Status())
		if !strings.Contains(text, "metadata service is down") || strings.Contains(text, testSecret) {
			t.Errorf("the log does not tell of the failure, or shows the secret:\n%s", text)
		}
		if n := strings.Count(logged.String(), "failed"); n < 2 || n > 40 {
			t.Errorf("%d failures were logged in three minutes", n)
		}
	})
}

func TestChangedPlaceIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &fakeProvider{}
		s := startSource(t, p, slog.New(slog.DiscardHandler))
		p.dirty.Store(true)
		time.Sleep(changeInterval + time.Second)
		if got := s.Keys().ID; got != "id-2" {
			t.Errorf("keys are %s", got)
		}
	})
}

func TestRefusedKeysAreRenewedAtACalmPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &fakeProvider{life: time.Hour}
		s := startSource(t, p, slog.New(slog.DiscardHandler))
		used := s.Keys()
		if s.Refreshed(t.Context(), used) {
			t.Error("the same keys count as newer")
		}
		synctest.Wait()
		if !s.Refreshed(t.Context(), used) {
			t.Error("the refusal did not make the source renew")
		}
		for range 100 {
			s.Refreshed(t.Context(), s.Keys())
			time.Sleep(100 * time.Millisecond)
		}
		if n := p.reads.Load(); n > 4 {
			t.Errorf("10 s of refusals read the keys %d times", n)
		}
	})
}

// TestNoSecretIsEverShown prints, logs and encodes whatever holds a secret.
func TestNoSecretIsEverShown(t *testing.T) {
	cfg := Config{Kind: Static, AccessKeyID: testID, AccessKeySecret: testSecret, SecurityToken: testToken}
	source := openSource(t, cfg)
	file := openSource(t, Config{File: writeCredentials(t, 0o600, keyFile(testID, testToken))})
	secrettest.NotShown(t, []string{testSecret, testToken},
		cfg, &cfg, source, file, source.Keys(), *source.Keys(), source.Keys().Secret, source.Status(), source.provider,
		struct{ C Config }{cfg},
		struct{ k *Keys }{source.Keys()},
		struct{ k Keys }{*source.Keys()},
	)
}

// cloudKindEnv makes the test binary a child of TestCloudCredentials.
const cloudKindEnv = "PAILFS_TEST_CLOUD_KIND"

// TestCloudCredentials asks the library against servers of the test's own. The
// library knows fixed addresses only, so a child process reaches them through a
// proxy (the metadata service) and a trusted certificate (STS).
func TestCloudCredentials(t *testing.T) {
	if os.Getenv(cloudKindEnv) != "" {
		s, err := Open(Config{
			Kind: Kind(os.Getenv(cloudKindEnv)), STSEndpoint: os.Getenv("PAILFS_TEST_STS"),
		}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		wantKeys(t, s, testID, testSecret, testToken)
		return
	}
	expiration := time.Now().Add(time.Hour).UTC().Format("2006-01-02T15:04:05Z")
	triple := fmt.Sprintf(`"AccessKeyId":%q,"AccessKeySecret":%q,"SecurityToken":%q,"Expiration":%q`, testID, testSecret, testToken, expiration)
	metadata := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.String() {
		case "http://100.100.100.200/latest/api/token?", "http://100.100.100.200/latest/api/token":
			fmt.Fprint(w, "metadata-token")
		case "http://100.100.100.200/latest/meta-data/ram/security-credentials/?", "http://100.100.100.200/latest/meta-data/ram/security-credentials/":
			fmt.Fprint(w, "the-role")
		default:
			fmt.Fprintf(w, `{"Code":"Success","LastUpdated":"2026-01-01T00:00:00Z",%s}`, triple)
		}
	}))
	defer metadata.Close()
	sts := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err != nil || r.Form.Get("OIDCToken") != "service-account-token" || r.Form.Get("RoleArn") != "acs:ram::1:role/r" {
			http.Error(w, "bad request", http.StatusBadRequest)
			return
		}
		fmt.Fprintf(w, `{"Credentials":{%s}}`, triple)
	}))
	defer sts.Close()
	dir := t.TempDir()
	authority, token := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "token")
	if err := os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: sts.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(token, []byte("service-account-token"), 0o600); err != nil {
		t.Fatal(err)
	}
	roleEnv := []string{
		"ALIBABA_CLOUD_ROLE_ARN=acs:ram::1:role/r", "ALIBABA_CLOUD_OIDC_PROVIDER_ARN=acs:ram::1:oidc-provider/p", "ALIBABA_CLOUD_OIDC_TOKEN_FILE=" + token,
		"PAILFS_TEST_STS=" + strings.TrimPrefix(sts.URL, "https://"), "SSL_CERT_FILE=" + authority,
	}
	keyEnv := []string{"ALIBABA_CLOUD_ACCESS_KEY_ID=" + testID, "ALIBABA_CLOUD_ACCESS_KEY_SECRET=" + testSecret, "ALIBABA_CLOUD_SECURITY_TOKEN=" + testToken}
	for _, test := range []struct {
		name string
		kind Kind
		env  []string
	}{
		{"ECS role", ECSRole, []string{"HTTP_PROXY=" + metadata.URL}},
		{"OIDC", OIDC, roleEnv},
		{"chain, environment", Chain, keyEnv},
		{"chain, ECS role", Chain, []string{"HTTP_PROXY=" + metadata.URL}},
		{"auto, ECS role", Auto, []string{"HTTP_PROXY=" + metadata.URL}},
	} {
		t.Run(test.name, func(t *testing.T) {
			child := exec.Command(os.Args[0], "-test.run=^TestCloudCredentials$")
			child.Env = append([]string{"HOME=" + dir, cloudKindEnv + "=" + string(test.kind)}, test.env...)
			if out, err := child.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
