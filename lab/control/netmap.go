// What one node is told of the tailnet: itself, its peers, its packet filter. A pure function of the state.

package main

import (
	"cmp"
	"net/netip"
	"slices"

	"tailscale.com/net/tsaddr"
	"tailscale.com/tailcfg"
)

// Netmap is the whole of it at one moment. Its nodes are not changed once made.
type Netmap struct {
	Self   *tailcfg.Node
	Peers  []*tailcfg.Node // sorted by ID
	Filter []tailcfg.FilterRule
}

// MapFor builds the view of n.
func (t *Tailnet) MapFor(n *Node) Netmap {
	m := Netmap{Self: t.selfNode(n), Filter: t.policy.filterFor(n, t.state.Nodes)}
	if !n.Authorized {
		m.Filter = []tailcfg.FilterRule{}
		return m
	}
	for _, peer := range t.state.Nodes {
		// Without a disco key a peer cannot be talked to: it is told of once its first report is in.
		if peer == n || !peer.Authorized || peer.Disco.IsZero() || !t.policy.sees(n, peer) {
			continue
		}
		m.Peers = append(m.Peers, t.peerNode(n, peer))
	}
	slices.SortFunc(m.Peers, func(a, b *tailcfg.Node) int { return cmp.Compare(a.ID, b.ID) })
	return m
}

func (t *Tailnet) commonNode(n *Node) *tailcfg.Node {
	return &tailcfg.Node{
		ID:                n.ID,
		StableID:          n.StableID,
		Name:              t.fqdn(n),
		User:              n.user(),
		Key:               n.NodeKey,
		KeyExpiry:         n.KeyExpiry,
		Machine:           n.Machine,
		DiscoKey:          n.Disco,
		Addresses:         n.addresses(),
		AllowedIPs:        n.addresses(),
		Endpoints:         slices.Clone(n.Endpoints),
		HomeDERP:          n.HomeDERP,
		Created:           n.Created,
		Cap:               n.Cap,
		Tags:              slices.Clone(n.Tags),
		MachineAuthorized: n.Authorized,
		Expired:           n.expiredAt(t.now()),
	}
}

func (t *Tailnet) selfNode(n *Node) *tailcfg.Node {
	out := t.commonNode(n)
	out.Hostinfo = n.Hostinfo.Clone().View()
	out.PrimaryRoutes = t.primaryRoutes(n)
	out.AllowedIPs = append(out.AllowedIPs, n.routes()...)
	if n.exit() {
		out.AllowedIPs = append(out.AllowedIPs, tsaddr.ExitRoutes()...)
	}
	out.CapMap = tailcfg.NodeCapMap{tailcfg.NodeAttrSuggestExitNodeUI: nil}
	for _, attr := range t.policy.attrsOf(n) {
		out.CapMap[tailcfg.NodeCapability(attr)] = nil
	}
	return out
}

func (t *Tailnet) peerNode(viewer, n *Node) *tailcfg.Node {
	out := t.commonNode(n)
	// What a peer advertises is passed on as headscale does: by that a client tells "not approved" from "not advertised".
	out.Hostinfo = (&tailcfg.Hostinfo{
		OS:          n.Hostinfo.OS,
		Hostname:    n.Hostinfo.Hostname,
		Services:    slices.Clone(n.Hostinfo.Services),
		RoutableIPs: slices.Clone(n.Hostinfo.RoutableIPs),
	}).View()
	allowed := t.policy.routesFor(viewer, n)
	for _, route := range t.primaryRoutes(n) {
		if slices.Contains(allowed, route) {
			out.PrimaryRoutes = append(out.PrimaryRoutes, route)
		}
	}
	out.AllowedIPs = append(out.AllowedIPs, out.PrimaryRoutes...)
	if t.policy.mayUseExit(viewer, n) {
		out.AllowedIPs = append(out.AllowedIPs, tsaddr.ExitRoutes()...)
		// The hosted service recommends every exit node of a tailnet's own; auto:any chooses among these.
		out.CapMap = tailcfg.NodeCapMap{tailcfg.NodeAttrSuggestExitNode: nil}
	}
	for _, attr := range t.policy.attrsOf(n) {
		if attr == string(tailcfg.NodeAttrSuggestExitNode) && out.CapMap == nil {
			out.CapMap = tailcfg.NodeCapMap{tailcfg.NodeAttrSuggestExitNode: nil}
		}
	}
	out.Online = t.online(n)
	if out.Online == nil || !*out.Online {
		out.LastSeen = new(n.LastSeen)
	}
	return out
}

// primaryRoutes returns those subnet routes that n serves: of several devices that offer one, the oldest that is online
// does, or the oldest of all where none is.
func (t *Tailnet) primaryRoutes(n *Node) []netip.Prefix {
	var out []netip.Prefix
	for _, route := range n.routes() {
		var first, online *Node
		for _, other := range t.state.Nodes { // oldest first
			if slices.Contains(other.routes(), route) {
				if first == nil {
					first = other
				}
				if online == nil && other.Online {
					online = other
				}
			}
		}
		if cmp.Or(online, first) == n {
			out = append(out, route)
		}
	}
	return out
}

// profiles are the tailnet's people: one, and the hosted service's stand-in for tagged devices.
func profiles() []tailcfg.UserProfile {
	return []tailcfg.UserProfile{
		{ID: labUser, LoginName: labLogin, DisplayName: labUserTitle},
		{ID: taggedUser, LoginName: taggedLogin, DisplayName: "Tagged Devices"},
	}
}
