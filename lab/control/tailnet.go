// Tailnet: the whole state of the one tailnet, and the decisions over it. No IO here: Server locks it, calls it, tells
// the nodes and writes the file.

package main

import (
	"slices"
	"time"

	"tailscale.com/tailcfg"
)

// restartGrace is how much longer than usual a node counts as online after this server's own restart: production's are
// not seen by anybody, and clients need 8 to 10 s to come back here (a refused dial costs them their 10 s deadline).
const restartGrace = 30 * time.Second

// Tailnet is not safe for concurrent use.
type Tailnet struct {
	state  *State
	policy *Policy
	domain string // MagicDNS suffix
	now    func() time.Time
	events EventLog
}

// NewTailnet takes over state.
func NewTailnet(state *State, policy *Policy, domain string, now func() time.Time) *Tailnet {
	t := &Tailnet{state: state, policy: policy, domain: domain, now: now}
	for _, n := range state.Nodes {
		if n.Hostinfo == nil {
			n.Hostinfo = &tailcfg.Hostinfo{}
		}
		n.closedAt = now().Add(restartGrace)
	}
	return t
}

func (t *Tailnet) event(e Event) {
	e.Time = t.now().UTC()
	t.events.add(e)
}

// online is what peers are told of n; nil is "not said".
func (t *Tailnet) online(n *Node) *bool {
	for _, ref := range []string{n.Name, string(n.StableID)} {
		if v, ok := t.state.Settings.OnlineOverride[ref]; ok {
			return v
		}
	}
	return new(n.Online)
}

// nodeExpiry is when the key of a device that logs in now runs out.
func (t *Tailnet) nodeExpiry(n *Node) time.Time {
	if n.tagged() || t.state.Settings.NodeKeyExpirySeconds == 0 {
		return time.Time{}
	}
	return t.now().UTC().Add(time.Duration(t.state.Settings.NodeKeyExpirySeconds) * time.Second)
}

// Tick does what is due by the clock: devices that have been away for too long are offline, ephemeral ones are removed.
// It returns when it is needed next; the zero time: not before something else happens.
func (t *Tailnet) Tick() time.Time {
	now := t.now()
	var next time.Time
	due := func(at time.Time) bool {
		if !at.After(now) {
			return true
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
		return false
	}
	for _, n := range slices.Clone(t.state.Nodes) {
		if n.Online && !n.connected && due(n.closedAt.Add(t.state.Settings.offlineGrace())) {
			n.Online = false
			t.nodeEvent("offline", n, "")
		}
		if n.Ephemeral && !n.Online && due(n.closedAt.Add(t.state.Settings.ephemeralAfter())) {
			t.remove(n)
			continue
		}
		if !n.KeyExpiry.IsZero() {
			due(n.KeyExpiry) // who is told by Expired has to be told when that changes
		}
	}
	return next
}

// Connected notes that n has opened a map stream.
func (t *Tailnet) Connected(n *Node) {
	if !n.Online {
		t.nodeEvent("online", n, "")
	}
	n.connected, n.Online = true, true
}

// Disconnected notes that n's map stream is over. It stays online for the grace.
func (t *Tailnet) Disconnected(n *Node) {
	n.connected, n.closedAt = false, t.now()
	n.LastSeen = n.closedAt.UTC().Truncate(time.Second)
}
