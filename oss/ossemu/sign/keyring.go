package sign

import (
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"sync"
)

// maxDerivedKeys bounds the keyring. A server sees a few keys a day; who tries
// many regions only empties it.
const maxDerivedKeys = 1024

// keyring remembers derived V4 signing keys: each costs four HMACs and serves a
// whole day. It keys on the secret as well, so that a replaced secret takes
// effect at once.
type keyring struct {
	mu struct {
		sync.RWMutex
		keys map[derivation][]byte
	}
}

// derivation is everything that a signing key is derived from.
type derivation struct {
	prefix, secret, day, region, product, terminator string
}

func (k *keyring) key(d derivation) []byte {
	k.mu.RLock()
	key, ok := k.mu.keys[d]
	k.mu.RUnlock()
	if ok {
		return key
	}
	key = []byte(d.prefix + d.secret)
	for _, part := range []string{d.day, d.region, d.product, d.terminator} {
		key = hmacSHA256(key, []byte(part))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mu.keys == nil || len(k.mu.keys) >= maxDerivedKeys {
		k.mu.keys = make(map[derivation][]byte)
	}
	k.mu.keys[d] = key
	return key
}

func hmacSHA256(key, text []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(text)
	return h.Sum(nil)
}

// signHex is the signature of the V4 schemes.
func signHex(key, text []byte) string { return hex.EncodeToString(hmacSHA256(key, text)) }

// signBase64 is the signature of the schemes before V4.
func signBase64(secret string, text []byte) string {
	h := hmac.New(sha1.New, []byte(secret))
	h.Write(text)
	return base64.StdEncoding.EncodeToString(h.Sum(nil))
}
