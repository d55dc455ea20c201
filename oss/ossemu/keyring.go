package ossemu

import (
	"sync"

	"github.com/pailfs/pailfs/oss/ossemu/sign"
)

// keyring holds the credentials that requests may be signed with.
type keyring struct {
	mu struct {
		sync.RWMutex
		credentials map[string]sign.Credential
	}
}

var _ sign.Keys = (*keyring)(nil)

func newKeyring(credentials []sign.Credential) *keyring {
	k := new(keyring)
	k.mu.credentials = make(map[string]sign.Credential)
	for _, c := range credentials {
		k.mu.credentials[c.AccessKeyID] = c
	}
	return k
}

// Lookup implements sign.Keys.
func (k *keyring) Lookup(accessKeyID string) (sign.Credential, bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	c, ok := k.mu.credentials[accessKeyID]
	return c, ok
}

func (k *keyring) add(c sign.Credential) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mu.credentials[c.AccessKeyID] = c
}

func (k *keyring) remove(accessKeyID string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.mu.credentials, accessKeyID)
}
