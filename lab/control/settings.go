// What can be changed while the server runs, most of it to make it behave like a slower or stricter one.

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Settings are read and written by the admin API and kept in the state file.
type Settings struct {
	// BatchMS holds every message of an open map stream back for so long, as headscale does (0.3 to 1.4 s there, 800 ms
	// by its configuration). The first map of a stream is never held.
	BatchMS int `json:"batch_ms"`
	// OfflineGraceMS is how long after the end of its last map stream a node still counts as online.
	OfflineGraceMS int `json:"offline_grace_ms"`
	// RefuseKeys, where it is not null, is the error that every registration by key gets.
	RefuseKeys *string `json:"refuse_keys"`
	// SlowMS delays each answer of control and of the API. DERP, STUN and /health are not delayed.
	SlowMS int `json:"slow_ms"`
	// AutoApproveExit approves exit routes as soon as any node offers them, whatever the policy says.
	AutoApproveExit bool `json:"auto_approve_exit"`
	// DeviceApproval makes devices whose key is not pre-authorized wait for an admin (NeedsMachineAuth).
	DeviceApproval bool `json:"device_approval"`
	// NodeKeyExpirySeconds is the lifetime of an untagged node's key; tagged ones do not expire. 0: never.
	NodeKeyExpirySeconds int64 `json:"node_key_expiry_seconds"`
	// EphemeralAfterMS removes an ephemeral node that has been offline for so long.
	EphemeralAfterMS int64 `json:"ephemeral_after_ms"`
	// OnlineOverride says, by node name or stable id, what peers are told: true, false, or null for "not said".
	OnlineOverride map[string]*bool `json:"online_override"`
}

func defaultSettings() Settings {
	return Settings{
		OfflineGraceMS:       10_000,
		AutoApproveExit:      true,
		NodeKeyExpirySeconds: 180 * 24 * 3600,
		EphemeralAfterMS:     30 * 60 * 1000,
		OnlineOverride:       map[string]*bool{},
	}
}

// merged returns the settings with the fields that text names replaced. Unknown fields and impossible values are
// errors.
func (s Settings) merged(text []byte) (Settings, error) {
	out := s
	// The decoder would add to this map: an override that is not named again is gone.
	out.OnlineOverride = nil
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&out); err != nil {
		return s, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return s, errors.New("unexpected text after the settings")
	}
	var named map[string]json.RawMessage
	if err := json.Unmarshal(text, &named); err != nil {
		return s, err
	}
	if _, ok := named["online_override"]; !ok {
		out.OnlineOverride = s.OnlineOverride
	} else if out.OnlineOverride == nil {
		out.OnlineOverride = map[string]*bool{}
	}
	if out.RefuseKeys != nil && *out.RefuseKeys == "" {
		return s, errors.New("refuse_keys: want a text, or null")
	}
	for name, ms := range map[string]int64{
		"batch_ms": int64(out.BatchMS), "offline_grace_ms": int64(out.OfflineGraceMS), "slow_ms": int64(out.SlowMS),
		"ephemeral_after_ms": out.EphemeralAfterMS, "node_key_expiry_seconds": out.NodeKeyExpirySeconds,
	} {
		if ms < 0 {
			return s, fmt.Errorf("%s: %d is negative", name, ms)
		}
	}
	return out, nil
}

func (s Settings) batch() time.Duration { return time.Duration(s.BatchMS) * time.Millisecond }
func (s Settings) offlineGrace() time.Duration {
	return time.Duration(s.OfflineGraceMS) * time.Millisecond
}
func (s Settings) slow() time.Duration { return time.Duration(s.SlowMS) * time.Millisecond }
func (s Settings) ephemeralAfter() time.Duration {
	return time.Duration(s.EphemeralAfterMS) * time.Millisecond
}
