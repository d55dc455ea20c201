package main

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

// splitSecrets parts an environment into the variables that may be inherited and
// those that hold secrets.
func splitSecrets(environ []string) (plain, secret []string) {
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

// forgetSecrets removes them from this process's environment, so that no program
// that it starts inherits them.
func forgetSecrets() {
	for _, name := range secretVariables {
		_ = os.Unsetenv(name) // fails for a malformed name only
	}
}
