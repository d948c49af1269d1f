// Deltas: what has to be said so that a node that knows one map knows the next. A pure function of the two.

package main

import (
	"bytes"
	"encoding/json"
	"slices"
	"time"

	"tailscale.com/tailcfg"
)

// delta returns the messages for an open stream, none where nothing has changed. News of peers and of the node itself
// come apart: a message that has both makes clients build the whole map anew, and containerboot then misses removals.
func delta(was, is Netmap, now time.Time) []*tailcfg.MapResponse {
	var out []*tailcfg.MapResponse
	if peers := peersDelta(was, is); peers != nil {
		out = append(out, peers)
	}
	if !sameJSON(was.Self, is.Self) {
		out = append(out, &tailcfg.MapResponse{Node: is.Self, ControlTime: &now})
	}
	return out
}

func peersDelta(was, is Netmap) *tailcfg.MapResponse {
	msg := &tailcfg.MapResponse{}
	said := false
	before := map[tailcfg.NodeID]*tailcfg.Node{}
	for _, p := range was.Peers {
		before[p.ID] = p
	}
	for _, p := range is.Peers {
		old, known := before[p.ID]
		delete(before, p.ID)
		if known && sameJSON(old, p) {
			continue
		}
		said = true
		if known && old.Online != nil && p.Online == nil {
			// "Not said" cannot be said by a delta: only the whole list takes it back.
			return withFilter(&tailcfg.MapResponse{Peers: is.Peers}, was, is)
		}
		if patch := patchOf(old, p); patch != nil {
			msg.PeersChangedPatch = append(msg.PeersChangedPatch, patch)
		} else {
			msg.PeersChanged = append(msg.PeersChanged, p)
		}
	}
	for id := range before {
		said = true
		msg.PeersRemoved = append(msg.PeersRemoved, id)
	}
	slices.Sort(msg.PeersRemoved)
	msg = withFilter(msg, was, is)
	if !said && msg.PacketFilters == nil {
		return nil
	}
	return msg
}

// withFilter adds the packet filter where it has changed. An empty one has to be sent by this name: the older field
// drops empty lists on the wire.
func withFilter(msg *tailcfg.MapResponse, was, is Netmap) *tailcfg.MapResponse {
	if !sameJSON(was.Filter, is.Filter) {
		msg.PacketFilters = map[string][]tailcfg.FilterRule{"base": is.Filter}
	}
	return msg
}

// patchOf returns a patch that turns old into p, or nil where only the whole node can say it. Production tells online
// changes by patch, too, and clients act on that difference.
func patchOf(old, p *tailcfg.Node) *tailcfg.PeerChange {
	if old == nil {
		return nil
	}
	a, b := *old, *p
	a.Online, a.LastSeen, a.Endpoints, a.HomeDERP = nil, nil, nil, 0
	b.Online, b.LastSeen, b.Endpoints, b.HomeDERP = nil, nil, nil, 0
	if !sameJSON(&a, &b) {
		return nil
	}
	patch := &tailcfg.PeerChange{NodeID: p.ID}
	if !slices.Equal(old.Endpoints, p.Endpoints) {
		if len(p.Endpoints) == 0 {
			return nil // empty means unchanged
		}
		patch.Endpoints = p.Endpoints
	}
	if old.HomeDERP != p.HomeDERP {
		if p.HomeDERP == 0 {
			return nil
		}
		patch.DERPRegion = p.HomeDERP
	}
	if p.Online != nil && (old.Online == nil || *old.Online != *p.Online) {
		patch.Online = p.Online
	}
	if p.LastSeen != nil && (old.LastSeen == nil || !old.LastSeen.Equal(*p.LastSeen)) {
		patch.LastSeen = p.LastSeen
	}
	return patch
}

// sameJSON compares by what would go over the wire.
func sameJSON(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
