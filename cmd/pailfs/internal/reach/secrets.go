package reach

import (
	"os"
	"slices"
	"strings"
)

// secretVariables are the environment variables that hold keys or tokens, or lead
// to them.
var secretVariables = []string{
	"OSS_ACCESS_KEY_ID",
	"OSS_ACCESS_KEY_SECRET",
	"OSS_SESSION_TOKEN",
	"ALIBABA_CLOUD_ACCESS_KEY_ID",
	"ALIBABA_CLOUD_ACCESS_KEY_SECRET",
	"ALIBABA_CLOUD_SECURITY_TOKEN",
	"ALIBABA_CLOUD_CREDENTIALS_URI",
}

// SplitSecrets parts an environment into the variables that may be inherited and
// those that hold secrets.
func SplitSecrets(environ []string) (plain, secret []string) {
	for _, assignment := range environ {
		name, _, _ := strings.Cut(assignment, "=")
		if slices.Contains(secretVariables, name) {
			secret = append(secret, assignment)
		} else {
			plain = append(plain, assignment)
		}
	}
	return plain, secret
}

// forgetSecrets removes them from this process's environment once the credentials
// have been read. The vendor's default chain reads its own variables again when
// it renews, so it keeps them.
func forgetSecrets(credentials string) {
	for _, name := range secretVariables {
		if credentials != "default" || strings.HasPrefix(name, "OSS_") {
			_ = os.Unsetenv(name) // fails for a malformed name only
		}
	}
}
