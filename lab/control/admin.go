// The admin API on the unix socket: what a lab does to its tailnet, faults included.

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"tailscale.com/net/tsaddr"
)

func (s *Server) adminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", s.adminHealth)
	mux.HandleFunc("GET /keys", s.adminListKeys)
	mux.HandleFunc("POST /keys", s.adminCreateKey)
	mux.HandleFunc("DELETE /keys/{id}", s.adminRevokeKey)
	mux.HandleFunc("GET /nodes", s.adminListNodes)
	mux.HandleFunc("GET /nodes/{ref}", s.onNode(nil))
	mux.HandleFunc("DELETE /nodes/{ref}", s.onNode(func(t *Tailnet, n *Node, _ nodeRequest) error {
		t.remove(n)
		return nil
	}))
	for verb, act := range nodeVerbs {
		mux.HandleFunc("POST /nodes/{ref}/"+verb, s.onNode(act))
	}
	mux.HandleFunc("GET /policy", s.adminPolicy)
	mux.HandleFunc("PUT /policy", s.adminSetPolicy)
	mux.HandleFunc("GET /settings", s.adminSettings)
	mux.HandleFunc("PUT /settings", s.adminSetSettings)
	mux.HandleFunc("GET /events", s.adminEvents)
	return jsonErrors(mux)
}

// nodeRequest is the optional body of POST /nodes/{ref}/{verb}.
type nodeRequest struct {
	Routes       []netip.Prefix `json:"routes"`        // of approve, unapprove
	AfterSeconds float64        `json:"after_seconds"` // of expire
}

var nodeVerbs = map[string]func(*Tailnet, *Node, nodeRequest) error{
	// approve allows the named routes, or all that the device offers; a device that offers none yet may become an exit
	// node.
	"approve": func(t *Tailnet, n *Node, req nodeRequest) error {
		if len(req.Routes) == 0 {
			req.Routes = n.advertised()
		}
		if len(req.Routes) == 0 {
			req.Routes = tsaddr.ExitRoutes()
		}
		t.approve(n, req.Routes, "admin")
		return nil
	},
	// unapprove withdraws the named routes, or all.
	"unapprove": func(t *Tailnet, n *Node, req nodeRequest) error {
		if len(req.Routes) == 0 {
			req.Routes = slices.Clone(n.Approved)
		}
		t.unapprove(n, req.Routes)
		return nil
	},
	// expire makes the device's key expire, now or after a while.
	"expire": func(t *Tailnet, n *Node, req nodeRequest) error {
		if req.AfterSeconds < 0 {
			return fmt.Errorf("after_seconds: %v is negative", req.AfterSeconds)
		}
		n.KeyExpiry = t.now().UTC().Add(time.Duration(req.AfterSeconds * float64(time.Second)))
		t.nodeEvent("expire", n, n.KeyExpiry.Format(time.RFC3339Nano))
		return nil
	},
	// renew extends the key as if the device had just logged in.
	"renew": func(t *Tailnet, n *Node, _ nodeRequest) error {
		n.KeyExpiry = t.nodeExpiry(n)
		t.nodeEvent("renew", n, "")
		return nil
	},
	// authorize and deauthorize are device approval.
	"authorize": func(t *Tailnet, n *Node, _ nodeRequest) error {
		n.Authorized = true
		t.nodeEvent("authorize", n, "")
		return nil
	},
	"deauthorize": func(t *Tailnet, n *Node, _ nodeRequest) error {
		n.Authorized = false
		t.nodeEvent("deauthorize", n, "")
		return nil
	},
}

// nodeView is a device as the admin API tells of it.
type nodeView struct {
	ID               string         `json:"id"`
	NodeID           int64          `json:"node_id"`
	Name             string         `json:"name"`
	FQDN             string         `json:"fqdn"`
	Hostname         string         `json:"hostname"`
	Addresses        []netip.Addr   `json:"addresses"`
	Tags             []string       `json:"tags"`
	User             string         `json:"user"`
	Online           *bool          `json:"online"`    // as peers are told; null: not said
	Connected        bool           `json:"connected"` // a map stream is open right now
	Expired          bool           `json:"expired"`
	KeyExpiry        *time.Time     `json:"key_expiry"` // null: never
	Authorized       bool           `json:"authorized"`
	Ephemeral        bool           `json:"ephemeral"`
	AdvertisedRoutes []netip.Prefix `json:"advertised_routes"`
	ApprovedRoutes   []netip.Prefix `json:"approved_routes"`
	ExitNode         bool           `json:"exit_node"` // offered and approved
	Endpoints        []string       `json:"endpoints"`
	KeyID            string         `json:"key_id"`
	NodeKey          string         `json:"node_key"`
	LastSeen         time.Time      `json:"last_seen"`
	Created          time.Time      `json:"created"`
}

func (t *Tailnet) view(n *Node) nodeView {
	v := nodeView{
		ID: string(n.StableID), NodeID: int64(n.ID), Name: n.Name, FQDN: strings.TrimSuffix(t.fqdn(n), "."),
		Hostname: n.Hostinfo.Hostname, Addresses: n.addrs(), Tags: orEmpty(n.Tags), User: n.login(),
		Online: t.online(n), Connected: n.connected, Expired: n.expiredAt(t.now()), Authorized: n.Authorized,
		Ephemeral: n.Ephemeral, AdvertisedRoutes: orEmpty(n.advertised()), ApprovedRoutes: orEmpty(slices.Clone(n.Approved)),
		ExitNode: n.exit(), Endpoints: []string{}, KeyID: n.KeyID, NodeKey: n.NodeKey.String(),
		LastSeen: n.LastSeen, Created: n.Created,
	}
	if !n.KeyExpiry.IsZero() {
		v.KeyExpiry = new(n.KeyExpiry)
	}
	for _, ep := range n.Endpoints {
		v.Endpoints = append(v.Endpoints, ep.String())
	}
	if n.connected {
		v.LastSeen = t.now().UTC()
	}
	return v
}

func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// onNode answers for one node: act, then the node as it is now, or as it was where it is gone.
func (s *Server) onNode(act func(*Tailnet, *Node, nodeRequest) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var req nodeRequest
		if act != nil && !decodeBody(w, r, &req) {
			return
		}
		var view nodeView
		var found bool
		var err error
		do := func(t *Tailnet) {
			n := t.Find(r.PathValue("ref"))
			if n == nil {
				return
			}
			found = true
			view = t.view(n)
			if act == nil {
				return
			}
			if err = act(t, n, req); err == nil && t.has(n) {
				view = t.view(n)
			}
		}
		if act == nil {
			s.view(do)
		} else {
			s.change(do)
		}
		switch {
		case !found:
			writeError(w, http.StatusNotFound, "no node %q", r.PathValue("ref"))
		case err != nil:
			writeError(w, http.StatusBadRequest, "%v", err)
		default:
			if act != nil {
				s.saveOrWarn()
			}
			writeJSON(w, http.StatusOK, view)
		}
	}
}

func (s *Server) adminHealth(w http.ResponseWriter, _ *http.Request) {
	var nodes int
	s.view(func(t *Tailnet) { nodes = len(t.state.Nodes) })
	writeJSON(w, http.StatusOK, map[string]any{
		"status": "ok", "listen": s.Addr(), "stun_port": s.STUNPort(), "domain": s.cfg.Domain, "nodes": nodes,
	})
}

type keyView struct {
	ID            string    `json:"id"`
	Key           string    `json:"key,omitempty"` // told once, when it is made
	Tags          []string  `json:"tags"`
	Reusable      bool      `json:"reusable"`
	Ephemeral     bool      `json:"ephemeral"`
	Preauthorized bool      `json:"preauthorized"`
	Created       time.Time `json:"created"`
	Expires       time.Time `json:"expires"`
	Revoked       bool      `json:"revoked"`
	Uses          int       `json:"uses"`
}

func viewKey(k *AuthKey) keyView {
	return keyView{
		ID: k.ID, Tags: orEmpty(k.Tags), Reusable: k.Reusable, Ephemeral: k.Ephemeral, Preauthorized: k.Preauthorized,
		Created: k.Created, Expires: k.Expires, Revoked: !k.Revoked.IsZero(), Uses: k.Uses,
	}
}

func (s *Server) adminListKeys(w http.ResponseWriter, _ *http.Request) {
	out := []keyView{}
	s.view(func(t *Tailnet) {
		for _, k := range t.state.Keys {
			out = append(out, viewKey(k))
		}
	})
	writeJSON(w, http.StatusOK, out)
}

func (s *Server) adminCreateKey(w http.ResponseWriter, r *http.Request) {
	req := struct {
		Tags          []string `json:"tags"`
		Reusable      bool     `json:"reusable"`
		Ephemeral     bool     `json:"ephemeral"`
		Preauthorized bool     `json:"preauthorized"`
		Description   string   `json:"description"`
		ExpirySeconds float64  `json:"expiry_seconds"` // 0: 90 days; below 0: a key that has expired already
	}{Preauthorized: true}
	if !decodeBody(w, r, &req) {
		return
	}
	var view keyView
	var err error
	s.change(func(t *Tailnet) {
		var k *AuthKey
		var text string
		k, text, err = t.CreateKey(KeyRequest{
			Tags: req.Tags, Reusable: req.Reusable, Ephemeral: req.Ephemeral, Preauthorized: req.Preauthorized,
			Description: req.Description, Lifetime: time.Duration(req.ExpirySeconds * float64(time.Second)),
		})
		if err == nil {
			view = viewKey(k)
			view.Key = text
		}
	})
	if err != nil {
		writeError(w, http.StatusBadRequest, "%v", err)
		return
	}
	s.saveOrWarn()
	writeJSON(w, http.StatusOK, view)
}

func (s *Server) adminRevokeKey(w http.ResponseWriter, r *http.Request) {
	var ok bool
	s.change(func(t *Tailnet) { ok = t.RevokeKey(r.PathValue("id")) })
	if !ok {
		writeError(w, http.StatusNotFound, "no key %q that is not revoked", r.PathValue("id"))
		return
	}
	s.saveOrWarn()
	writeJSON(w, http.StatusOK, struct{}{})
}

func (s *Server) adminListNodes(w http.ResponseWriter, _ *http.Request) {
	out := []nodeView{}
	s.view(func(t *Tailnet) {
		for _, n := range t.state.Nodes {
			out = append(out, t.view(n))
		}
	})
	writeJSON(w, http.StatusOK, out)
}

func (s *Server) adminPolicy(w http.ResponseWriter, _ *http.Request) {
	var text string
	s.view(func(t *Tailnet) { text = t.policy.text })
	w.Header().Set("Content-Type", "application/hujson")
	_, _ = io.WriteString(w, text)
}

func (s *Server) adminSetPolicy(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		writeError(w, http.StatusBadRequest, "read the policy: %v", err)
		return
	}
	p, err := s.SetPolicy(string(text))
	if err != nil {
		writeError(w, http.StatusBadRequest, "%v", err)
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"warnings": orEmpty(p.warnings)})
}

func (s *Server) adminSettings(w http.ResponseWriter, _ *http.Request) {
	var settings Settings
	s.view(func(t *Tailnet) { settings = t.state.Settings })
	writeJSON(w, http.StatusOK, settings)
}

func (s *Server) adminSetSettings(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		writeError(w, http.StatusBadRequest, "read the settings: %v", err)
		return
	}
	var settings Settings
	s.change(func(t *Tailnet) {
		settings, err = t.state.Settings.merged(text)
		if err == nil {
			t.state.Settings = settings
			t.event(Event{Kind: "settings", Detail: string(compactJSON(text))})
		}
	})
	if err != nil {
		writeError(w, http.StatusBadRequest, "%v", err)
		return
	}
	s.saveOrWarn()
	writeJSON(w, http.StatusOK, settings)
}

func compactJSON(text []byte) []byte {
	var v any
	if json.Unmarshal(text, &v) != nil {
		return nil
	}
	out, _ := json.Marshal(v)
	return out
}

func (s *Server) adminEvents(w http.ResponseWriter, r *http.Request) {
	var since int64
	if text := r.FormValue("since"); text != "" {
		var err error
		if since, err = strconv.ParseInt(text, 10, 64); err != nil {
			writeError(w, http.StatusBadRequest, "since: %q is not a number", text)
			return
		}
	}
	w.Header().Set("Content-Type", "application/jsonl")
	_ = s.tailnet.events.writeSince(w, since)
}

// decodeBody reads a JSON object, or nothing, strictly. Where it fails, the answer is given.
func decodeBody(w http.ResponseWriter, r *http.Request, v any) bool {
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil && !errors.Is(err, io.EOF) {
		writeError(w, http.StatusBadRequest, "body: %v", err)
		return false
	}
	return true
}

// jsonErrors gives the mux's own 404 and 405 the shape of all other errors.
func jsonErrors(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		rec := &statusOnly{header: http.Header{}}
		mux.ServeHTTP(rec, r)
		if allow := rec.header.Get("Allow"); allow != "" {
			w.Header().Set("Allow", allow)
		}
		writeError(w, rec.status, "%s %s: %s", r.Method, r.URL.Path, strings.ToLower(http.StatusText(rec.status)))
	})
}

// statusOnly hears what a handler would answer.
type statusOnly struct {
	header http.Header
	status int
}

func (s *statusOnly) Header() http.Header         { return s.header }
func (s *statusOnly) Write(b []byte) (int, error) { return len(b), nil }
func (s *statusOnly) WriteHeader(status int)      { s.status = status }
