// Registration: who may join, who comes back, and who has to log in again.

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"tailscale.com/tailcfg"
	"tailscale.com/types/key"
)

// Verdict is the decision over one registration. Exactly one field is set.
type Verdict struct {
	Node    *Node  // in, under this identity
	Expired bool   // the client shall make a new node key and come again
	Login   bool   // only a person at a browser could go on
	Refused string // an error for the user
}

func (v Verdict) response() *tailcfg.RegisterResponse {
	switch {
	case v.Refused != "":
		return &tailcfg.RegisterResponse{Error: v.Refused}
	case v.Expired:
		return &tailcfg.RegisterResponse{NodeKeyExpired: true}
	case v.Node == nil:
		return &tailcfg.RegisterResponse{}
	}
	n := v.Node
	title := labUserTitle
	if n.tagged() {
		title = "Tagged Devices"
	}
	return &tailcfg.RegisterResponse{
		User:              tailcfg.User{ID: n.user(), DisplayName: title, Created: n.Created},
		Login:             tailcfg.Login{ID: tailcfg.LoginID(n.user()), Provider: "lab", LoginName: n.login(), DisplayName: title},
		MachineAuthorized: n.Authorized,
	}
}

// Register decides, and changes the tailnet accordingly.
func (t *Tailnet) Register(machine key.MachinePublic, req *tailcfg.RegisterRequest) Verdict {
	n := t.byMachine(machine)
	if other := t.byKey(req.NodeKey); other != nil && other != n {
		return t.deny(req, n, "", "node key is already in use by another machine")
	}
	known := n != nil && n.NodeKey == req.NodeKey

	if !req.Expiry.IsZero() && !req.Expiry.After(t.now()) {
		return t.logout(n, known)
	}
	if known && n.expiredAt(t.now()) {
		t.nodeEvent("expired", n, "it came with its expired key")
		return Verdict{Expired: true}
	}
	if known {
		if !req.Expiry.IsZero() && (n.KeyExpiry.IsZero() || req.Expiry.Before(n.KeyExpiry)) {
			n.KeyExpiry = req.Expiry.UTC()
		}
		if req.Hostinfo != nil {
			t.retag(n, req.Hostinfo.RequestTags)
			t.setHostinfo(n, req.Hostinfo)
		}
		n.Cap = req.Version
		if n.expiredAt(t.now()) { // by retag
			return Verdict{Expired: true}
		}
		t.nodeEvent("return", n, "")
		return Verdict{Node: n}
	}
	if req.Auth == nil || req.Auth.AuthKey == "" {
		if req.Followup == "" {
			t.event(Event{Kind: "needs-login", Node: hostnameOf(req), Detail: "no key"})
		}
		return Verdict{Login: true}
	}
	return t.login(machine, n, req)
}

// login admits by key: a new device, or one that comes back with a new node key and keeps its identity.
func (t *Tailnet) login(machine key.MachinePublic, n *Node, req *tailcfg.RegisterRequest) Verdict {
	if refuse := t.state.Settings.RefuseKeys; refuse != nil {
		return t.deny(req, n, "", *refuse)
	}
	k, err := t.checkKey(req.Auth.AuthKey)
	if err != nil {
		var id string
		if k != nil {
			id = k.ID
		}
		return t.deny(req, n, id, err.Error())
	}
	var requested []string
	if req.Hostinfo != nil {
		requested = req.Hostinfo.RequestTags
	}
	tags, err := t.tagsBy(k, requested)
	if err != nil {
		return t.deny(req, n, k.ID, err.Error()) // the key stays unused
	}

	kind := "login"
	if n == nil {
		kind = "register"
		if n, err = t.addNode(machine); err != nil {
			return t.deny(req, nil, k.ID, err.Error())
		}
	}
	k.Uses++
	n.Tags = tags
	if req.Hostinfo == nil {
		t.rename()
	}
	t.setHostinfo(n, req.Hostinfo)
	n.NodeKey = req.NodeKey
	n.KeyID = k.ID
	n.Ephemeral = k.Ephemeral || req.Ephemeral
	n.KeyExpiry = t.nodeExpiry(n)
	if !req.Expiry.IsZero() && (n.KeyExpiry.IsZero() || req.Expiry.Before(n.KeyExpiry)) {
		n.KeyExpiry = req.Expiry.UTC()
	}
	n.Authorized = n.Authorized || k.Preauthorized || !t.state.Settings.DeviceApproval
	n.Cap = req.Version
	t.nodeEvent(kind, n, strings.Join(tags, " "))
	return Verdict{Node: n}
}

func (t *Tailnet) logout(n *Node, known bool) Verdict {
	if !known {
		return Verdict{Expired: true}
	}
	t.nodeEvent("logout", n, "")
	if n.Ephemeral {
		t.remove(n)
	} else {
		n.KeyExpiry = t.now().UTC().Truncate(time.Second)
	}
	return Verdict{Expired: true}
}

func (t *Tailnet) deny(req *tailcfg.RegisterRequest, n *Node, keyID, why string) Verdict {
	e := Event{Kind: "deny", Node: hostnameOf(req), KeyID: keyID, Detail: why}
	if n != nil {
		e.Node, e.ID = n.Name, string(n.StableID)
	}
	t.event(e)
	return Verdict{Refused: why}
}

func hostnameOf(req *tailcfg.RegisterRequest) string {
	if req.Hostinfo == nil {
		return ""
	}
	return req.Hostinfo.Hostname
}

// Update takes over what a running device reports: where it can be reached, and what it offers.
func (t *Tailnet) Update(n *Node, req *tailcfg.MapRequest) error {
	if len(req.EndpointTypes) != 0 && len(req.EndpointTypes) != len(req.Endpoints) {
		return fmt.Errorf("%d endpoints, %d endpoint types", len(req.Endpoints), len(req.EndpointTypes))
	}
	n.Endpoints, n.EndpointTypes = nil, nil
	for i, ep := range req.Endpoints {
		// Clients cannot use link-local endpoints of others.
		if ep.Addr().Zone() != "" || ep.Addr().Is6() && ep.Addr().IsLinkLocalUnicast() {
			continue
		}
		n.Endpoints = append(n.Endpoints, ep)
		if len(req.EndpointTypes) > 0 {
			n.EndpointTypes = append(n.EndpointTypes, req.EndpointTypes[i])
		}
	}
	n.Endpoints = slices.Clip(n.Endpoints)
	if !req.DiscoKey.IsZero() {
		n.Disco = req.DiscoKey
	}
	n.Cap = req.Version
	if req.Hostinfo != nil {
		t.retag(n, req.Hostinfo.RequestTags)
		t.setHostinfo(n, req.Hostinfo)
	}
	return nil
}
