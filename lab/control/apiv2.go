// /api/v2: those calls of Tailscale's public API that its Kubernetes operator makes, with its shapes.

package main

import (
	"crypto/subtle"
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

const tokenLifetime = time.Hour

// APIToken is an access token as it is kept.
type APIToken struct {
	Hash    string    `json:"hash"`
	Expires time.Time `json:"expires"`
}

func (s *Server) apiV2Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/v2/oauth/token", s.apiToken)
	authorized := func(pattern string, h http.HandlerFunc) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if !s.tokenIsGood(r) {
				writeError(w, http.StatusUnauthorized, "API token invalid")
				return
			}
			h(w, r)
		})
	}
	authorized("POST /api/v2/tailnet/{tailnet}/keys", s.apiCreateKey)
	authorized("GET /api/v2/tailnet/{tailnet}/keys", s.apiListKeys)
	authorized("GET /api/v2/tailnet/{tailnet}/keys/{id}", s.apiGetKey)
	authorized("DELETE /api/v2/tailnet/{tailnet}/keys/{id}", s.apiDeleteKey)
	authorized("GET /api/v2/tailnet/{tailnet}/devices", s.apiListDevices)
	authorized("GET /api/v2/device/{id}", s.apiGetDevice)
	authorized("DELETE /api/v2/device/{id}", s.apiDeleteDevice)
	return jsonErrors(mux)
}

// apiToken is the OAuth client-credentials grant; the client may say who it is in the form or by HTTP Basic.
func (s *Server) apiToken(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxRequest)
	id, secret := r.FormValue("client_id"), r.FormValue("client_secret")
	if id == "" {
		id, secret, _ = r.BasicAuth()
	}
	if !sameSecret(id, s.cfg.OAuthID) || !sameSecret(secret, s.cfg.OAuthSecret) {
		writeError(w, http.StatusUnauthorized, "API token invalid")
		return
	}
	token := "tskey-api-k" + randomID(10) + "CNTRL-" + randomID(32)
	s.change(func(t *Tailnet) {
		kept := t.state.Tokens[:0]
		for _, old := range t.state.Tokens {
			if t.now().Before(old.Expires) {
				kept = append(kept, old)
			}
		}
		t.state.Tokens = append(kept, &APIToken{Hash: hashSecret(token), Expires: t.now().UTC().Add(tokenLifetime)})
	})
	writeJSON(w, http.StatusOK, map[string]any{
		"access_token": token, "token_type": "Bearer", "expires_in": int(tokenLifetime.Seconds()), "scope": "devices auth_keys",
	})
}

func sameSecret(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// tokenIsGood accepts a token as Bearer or as the user name of HTTP Basic.
func (s *Server) tokenIsGood(r *http.Request) bool {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		token, _, ok = r.BasicAuth()
	}
	hash, good := hashSecret(token), false
	s.view(func(t *Tailnet) {
		for _, known := range t.state.Tokens {
			good = good || sameSecret(known.Hash, hash) && t.now().Before(known.Expires)
		}
	})
	return ok && good
}

// apiKey is a key in the public API's shape.
type apiKey struct {
	ID            string          `json:"id"`
	Key           string          `json:"key,omitempty"`
	KeyType       string          `json:"keyType"`
	Description   string          `json:"description"`
	ExpirySeconds int64           `json:"expirySeconds"`
	Created       time.Time       `json:"created"`
	Expires       time.Time       `json:"expires"`
	Revoked       time.Time       `json:"revoked,omitzero"`
	Invalid       bool            `json:"invalid"`
	Capabilities  keyCapabilities `json:"capabilities"`
}

type keyCapabilities struct {
	Devices struct {
		Create struct {
			Reusable      bool     `json:"reusable"`
			Ephemeral     bool     `json:"ephemeral"`
			Preauthorized bool     `json:"preauthorized"`
			Tags          []string `json:"tags"`
		} `json:"create"`
	} `json:"devices"`
}

func (t *Tailnet) apiKey(k *AuthKey) apiKey {
	out := apiKey{
		ID: k.ID, KeyType: "auth", Description: k.Description, ExpirySeconds: int64(k.Expires.Sub(k.Created).Seconds()),
		Created: k.Created, Expires: k.Expires, Revoked: k.Revoked,
		Invalid: !k.usableAt(t.now()) || !k.Reusable && k.Uses > 0,
	}
	create := &out.Capabilities.Devices.Create
	create.Reusable, create.Ephemeral, create.Preauthorized, create.Tags = k.Reusable, k.Ephemeral, k.Preauthorized, orEmpty(k.Tags)
	return out
}

func (s *Server) apiCreateKey(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Capabilities  keyCapabilities `json:"capabilities"`
		ExpirySeconds int64           `json:"expirySeconds"`
		Description   string          `json:"description"`
	}
	// Newer clients send fields that this server has no use for.
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest)).Decode(&req); err != nil {
		writeError(w, http.StatusBadRequest, "invalid request body: %v", err)
		return
	}
	create := req.Capabilities.Devices.Create
	if len(create.Tags) == 0 { // a key made by an OAuth client belongs to nobody
		writeError(w, http.StatusBadRequest, "tailnet-owned auth key must have tags set")
		return
	}
	if req.ExpirySeconds < 0 {
		writeError(w, http.StatusBadRequest, "expirySeconds must not be negative")
		return
	}
	var out apiKey
	var err error
	s.change(func(t *Tailnet) {
		var k *AuthKey
		var text string
		k, text, err = t.CreateKey(KeyRequest{
			Tags: create.Tags, Reusable: create.Reusable, Ephemeral: create.Ephemeral, Preauthorized: create.Preauthorized,
			Description: req.Description, Lifetime: time.Duration(req.ExpirySeconds) * time.Second,
		})
		if err == nil {
			out = t.apiKey(k)
			out.Key = text
		}
	})
	if err != nil {
		writeError(w, http.StatusBadRequest, "%v", err)
		return
	}
	s.saveOrWarn()
	writeJSON(w, http.StatusOK, out)
}

func (s *Server) apiListKeys(w http.ResponseWriter, _ *http.Request) {
	out := []apiKey{}
	s.view(func(t *Tailnet) {
		for _, k := range t.state.Keys {
			if k.usableAt(t.now()) {
				out = append(out, t.apiKey(k))
			}
		}
	})
	writeJSON(w, http.StatusOK, map[string]any{"keys": out})
}

func (s *Server) apiGetKey(w http.ResponseWriter, r *http.Request) {
	var out *apiKey
	s.view(func(t *Tailnet) {
		if k := t.key(r.PathValue("id")); k != nil {
			out = new(t.apiKey(k))
		}
	})
	if out == nil {
		writeError(w, http.StatusNotFound, "no key with ID %q", r.PathValue("id"))
		return
	}
	writeJSON(w, http.StatusOK, out)
}

func (s *Server) apiDeleteKey(w http.ResponseWriter, r *http.Request) {
	var ok bool
	s.change(func(t *Tailnet) { ok = t.RevokeKey(r.PathValue("id")) })
	if !ok {
		writeError(w, http.StatusNotFound, "no key with ID %q", r.PathValue("id"))
		return
	}
	s.saveOrWarn()
	writeJSON(w, http.StatusOK, struct{}{})
}

// apiDevice is a device in the public API's shape.
type apiDevice struct {
	Addresses         []string `json:"addresses"`
	ID                string   `json:"id"`
	NodeID            string   `json:"nodeId"`
	User              string   `json:"user"`
	Name              string   `json:"name"`
	Hostname          string   `json:"hostname"`
	ClientVersion     string   `json:"clientVersion"`
	UpdateAvailable   bool     `json:"updateAvailable"`
	OS                string   `json:"os"`
	Created           string   `json:"created"`
	LastSeen          string   `json:"lastSeen"`
	ConnectedToServer bool     `json:"connectedToControl"`
	KeyExpiryDisabled bool     `json:"keyExpiryDisabled"`
	Expires           string   `json:"expires"`
	Authorized        bool     `json:"authorized"`
	IsExternal        bool     `json:"isExternal"`
	IsEphemeral       bool     `json:"isEphemeral"`
	MachineKey        string   `json:"machineKey"`
	NodeKey           string   `json:"nodeKey"`
	Tags              []string `json:"tags,omitempty"`
	EnabledRoutes     []string `json:"enabledRoutes"`
	AdvertisedRoutes  []string `json:"advertisedRoutes"`
}

func (t *Tailnet) apiDevice(n *Node) apiDevice {
	view := t.view(n)
	out := apiDevice{
		Addresses: []string{n.Addr4.String(), n.Addr6.String()},
		ID:        view.ID, NodeID: view.ID, User: view.User, Name: view.FQDN, Hostname: view.Hostname,
		ClientVersion: n.Hostinfo.IPNVersion, OS: n.Hostinfo.OS,
		Created: n.Created.Format(time.RFC3339), LastSeen: view.LastSeen.Format(time.RFC3339), ConnectedToServer: n.connected,
		KeyExpiryDisabled: n.KeyExpiry.IsZero(), Expires: n.KeyExpiry.Format(time.RFC3339),
		Authorized: n.Authorized, IsEphemeral: n.Ephemeral, MachineKey: n.Machine.String(), NodeKey: n.NodeKey.String(), Tags: n.Tags,
		EnabledRoutes: []string{}, AdvertisedRoutes: []string{},
	}
	for _, p := range n.Approved {
		out.EnabledRoutes = append(out.EnabledRoutes, p.String())
	}
	for _, p := range n.advertised() {
		out.AdvertisedRoutes = append(out.AdvertisedRoutes, p.String())
	}
	return out
}

func (s *Server) apiListDevices(w http.ResponseWriter, _ *http.Request) {
	out := []apiDevice{}
	s.view(func(t *Tailnet) {
		for _, n := range t.state.Nodes {
			out = append(out, t.apiDevice(n))
		}
	})
	writeJSON(w, http.StatusOK, map[string]any{"devices": out})
}

// device finds by id only: a name in this place is nobody's.
func (t *Tailnet) device(id string) *Node {
	if n := t.Find(id); n != nil && strings.EqualFold(string(n.StableID), id) {
		return n
	}
	return nil
}

func (s *Server) apiGetDevice(w http.ResponseWriter, r *http.Request) {
	var out *apiDevice
	s.view(func(t *Tailnet) {
		if n := t.device(r.PathValue("id")); n != nil {
			out = new(t.apiDevice(n))
		}
	})
	if out == nil {
		writeError(w, http.StatusNotFound, "no such device")
		return
	}
	writeJSON(w, http.StatusOK, out)
}

func (s *Server) apiDeleteDevice(w http.ResponseWriter, r *http.Request) {
	var found bool
	s.change(func(t *Tailnet) {
		if n := t.device(r.PathValue("id")); n != nil {
			found = true
			t.remove(n)
		}
	})
	if !found {
		writeError(w, http.StatusNotFound, "no such device")
		return
	}
	s.saveOrWarn()
	writeJSON(w, http.StatusOK, struct{}{})
}
