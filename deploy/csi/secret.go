package csi

import (
	"encoding/json"
	"errors"
	"fmt"
)

// secretKey is the key of a Secret under which the keys of the object store are, as pailfs mount reads them from a
// file: {"AccessKeyId": "...", "AccessKeySecret": "..."}, perhaps with SecurityToken and Expiration.
const secretKey = "credentials"

// keys are what a Secret holds.
type keys struct {
	AccessKeyID     string `json:"AccessKeyId"`
	AccessKeySecret string `json:"AccessKeySecret"`
	SecurityToken   string `json:"SecurityToken"`
}

// parseSecret checks what a Secret holds. Its errors show nothing of it.
func parseSecret(secret map[string]string) (keys, error) {
	var k keys
	text, ok := secret[secretKey]
	switch {
	case len(secret) == 0:
		return k, errors.New("the volume names no Secret: make one and name it, or give the attribute credentials another value")
	case !ok:
		return k, fmt.Errorf("the Secret has no key %q: make it with --from-file=%s=keys.json", secretKey, secretKey)
	case json.Unmarshal([]byte(text), &k) != nil || k.AccessKeyID == "" || k.AccessKeySecret == "":
		return keys{}, fmt.Errorf(`the key %q of the Secret is not {"AccessKeyId": "...", "AccessKeySecret": "..."}`, secretKey)
	}
	return k, nil
}
