// Auth keys: what a device presents instead of a person at a browser, and why one is refused.
//
// The texts are the hosted service's, as its users quote them; clients pass them on word for word.

package main

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"
)

// Why a key is refused.
var (
	errKeyMalformed = errors.New("invalid key: unable to validate API key")
	errKeyUnknown   = errors.New("invalid key: API key does not exist") // never issued, expired or revoked
	errKeyUsed      = errors.New("invalid key: single-use key has already been used")
)

// errTags is the hosted service's answer to tags that the asker may not have, for devices and for new keys.
func errTags(tags []string) error {
	return fmt.Errorf("requested tags [%s] are invalid or not permitted", strings.Join(tags, " "))
}

const (
	keyPrefix          = "tskey-auth-"
	defaultKeyLifetime = 90 * 24 * time.Hour
	idAlphabet         = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
)

// AuthKey is a key as it is kept: of its secret, only the hash.
type AuthKey struct {
	ID            string    `json:"id"`
	Hash          string    `json:"hash"` // SHA-256 of the secret, hex
	Description   string    `json:"description,omitempty"`
	Tags          []string  `json:"tags"` // none: devices belong to the lab's user
	Reusable      bool      `json:"reusable"`
	Ephemeral     bool      `json:"ephemeral"`
	Preauthorized bool      `json:"preauthorized"`
	Created       time.Time `json:"created"`
	Expires       time.Time `json:"expires"`
	Revoked       time.Time `json:"revoked,omitzero"`
	Uses          int       `json:"uses"`
}

// KeyRequest is what a new key shall be good for.
type KeyRequest struct {
	Tags          []string
	Reusable      bool
	Ephemeral     bool
	Preauthorized bool
	Description   string
	Lifetime      time.Duration // 0: 90 days; below: a key that has expired already
}

// CreateKey issues a key. The second result is the only copy of it.
func (t *Tailnet) CreateKey(req KeyRequest) (*AuthKey, string, error) {
	if bad := t.policy.undefinedTags(req.Tags); len(bad) > 0 {
		return nil, "", errTags(bad)
	}
	if req.Lifetime == 0 {
		req.Lifetime = defaultKeyLifetime
	}
	secret := randomID(32)
	k := &AuthKey{
		ID:            "k" + randomID(10) + "CNTRL",
		Hash:          hashSecret(secret),
		Description:   req.Description,
		Tags:          sortedTags(req.Tags),
		Reusable:      req.Reusable,
		Ephemeral:     req.Ephemeral,
		Preauthorized: req.Preauthorized,
		Created:       t.now().UTC(),
		Expires:       t.now().Add(req.Lifetime).UTC(),
	}
	t.state.Keys = append(t.state.Keys, k)
	t.event(Event{Kind: "key-created", KeyID: k.ID, Detail: strings.Join(k.Tags, " ")})
	return k, keyPrefix + k.ID + "-" + secret, nil
}

// RevokeKey makes a key worthless from now on; devices that used it stay. It reports whether there was such a key.
func (t *Tailnet) RevokeKey(id string) bool {
	k := t.key(id)
	if k == nil || !k.Revoked.IsZero() {
		return false
	}
	k.Revoked = t.now().UTC()
	t.event(Event{Kind: "key-revoked", KeyID: id})
	return true
}

func (t *Tailnet) key(id string) *AuthKey {
	for _, k := range t.state.Keys {
		if k.ID == id {
			return k
		}
	}
	return nil
}

// checkKey returns the key that text names, if it may be used now. It does not use it up.
func (t *Tailnet) checkKey(text string) (*AuthKey, error) {
	id, secret, ok := strings.Cut(strings.TrimPrefix(text, keyPrefix), "-")
	if !strings.HasPrefix(text, keyPrefix) || !ok || id == "" || secret == "" {
		return nil, errKeyMalformed
	}
	k := t.key(id)
	if k == nil || subtle.ConstantTimeCompare([]byte(k.Hash), []byte(hashSecret(secret))) != 1 {
		return nil, errKeyUnknown
	}
	if !k.usableAt(t.now()) {
		return k, errKeyUnknown
	}
	if !k.Reusable && k.Uses > 0 {
		return k, errKeyUsed
	}
	return k, nil
}

func (k *AuthKey) usableAt(now time.Time) bool {
	return k.Revoked.IsZero() && now.Before(k.Expires)
}

// tagsBy says which tags a device gets that asks for requested with key k: the key's own where it asks for none.
// A tag may be had that the key has, or that the policy lets one of the key's tags (or, for a key without tags, the
// lab's user) own.
func (t *Tailnet) tagsBy(k *AuthKey, requested []string) ([]string, error) {
	if len(requested) == 0 {
		requested = k.Tags
	}
	bad := t.policy.undefinedTags(requested)
	for _, tag := range requested {
		if !slices.Contains(bad, tag) && !slices.Contains(k.Tags, tag) && !t.policy.mayOwnTag(tag, k.Tags) {
			bad = append(bad, tag)
		}
	}
	if len(bad) > 0 {
		return nil, errTags(bad)
	}
	return sortedTags(requested), nil
}

func sortedTags(tags []string) []string {
	out := slices.Clone(tags)
	slices.Sort(out)
	return slices.Compact(out)
}

func hashSecret(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// randomID returns n characters that cannot be guessed.
func randomID(n int) string {
	out := make([]byte, n)
	for i := range out {
		c, err := rand.Int(rand.Reader, big.NewInt(int64(len(idAlphabet))))
		if err != nil {
			panic("no randomness: " + err.Error()) // crypto/rand ends the process before this since Go 1.24
		}
		out[i] = idAlphabet[c.Int64()]
	}
	return string(out)
}
