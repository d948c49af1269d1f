package main

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"tailscale.com/tailcfg"
	"tailscale.com/types/key"
)

func findPeer(m Netmap, n *Node) *tailcfg.Node {
	for _, p := range m.Peers {
		if p.ID == n.ID {
			return p
		}
	}
	return nil
}

// shape tells what kinds of news a list of messages holds.
func shape(messages []*tailcfg.MapResponse) string {
	var out []string
	for _, m := range messages {
		var words []string
		for word, said := range map[string]bool{
			"self": m.Node != nil, "changed": m.PeersChanged != nil, "patch": m.PeersChangedPatch != nil,
			"removed": m.PeersRemoved != nil, "filter": m.PacketFilters != nil, "all": m.Peers != nil,
		} {
			if said {
				words = append(words, word)
			}
		}
		slices.Sort(words)
		out = append(out, strings.Join(words, "+"))
	}
	return strings.Join(out, ", ")
}

func TestWhatAViewerIsToldOfAChange(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(w *world, viewer, peer *Node)
		want   string
	}{
		{"nothing", func(*world, *Node, *Node) {}, ""},
		{"a peer goes offline", func(_ *world, _, p *Node) { p.Online = false }, "patch"},
		{"a peer is found elsewhere", func(_ *world, _, p *Node) { p.Endpoints = []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:1")} }, "patch"},
		{"a peer has a home relay", func(_ *world, _, p *Node) { p.HomeDERP = derpRegion }, "patch"},
		{"a peer is nowhere to be found", func(_ *world, _, p *Node) { p.Endpoints = nil }, "changed"},
		{"a peer has another disco key", func(_ *world, _, p *Node) { p.Disco = key.NewDisco().Public() }, "changed"},
		{"a peer has another node key", func(_ *world, _, p *Node) { p.NodeKey = key.NewNode().Public() }, "changed"},
		{"a peer's key expires", func(w *world, _, p *Node) { p.KeyExpiry = w.clock }, "changed"},
		{"a peer becomes an exit node", func(w *world, _, p *Node) { w.offer(p) }, "changed"},
		{"a peer is deleted", func(w *world, _, p *Node) { w.remove(p) }, "removed"},
		{"a peer joins", func(w *world, _, _ *Node) { w.join("late", "tag:app") }, "changed"},
		{"a peer that has not reported yet", func(w *world, _, _ *Node) { w.join("late", "tag:app").Disco = key.DiscoPublic{} }, ""},
		{"the policy shuts all", func(w *world, _, _ *Node) { w.policy, _ = ParsePolicy(`{"acls": []}`) }, "filter+removed"},
		{"online is said otherwise", func(w *world, _, p *Node) {
			w.state.Settings.OnlineOverride = map[string]*bool{p.Name: new(false)}
		}, "patch"},
		{"online is not said any more", func(w *world, _, p *Node) {
			w.state.Settings.OnlineOverride = map[string]*bool{string(p.StableID): nil}
		}, "all"},
		{"its own key expires", func(w *world, v, _ *Node) { v.KeyExpiry = w.clock }, "self"},
		{"its own name changes, and a peer goes", func(w *world, v, p *Node) { w.remove(p); v.Name = "other" }, "removed, self"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, "")
			viewer, peer := w.join("viewer", "tag:worker"), w.join("peer", "tag:app")
			peer.Endpoints = []netip.AddrPort{netip.MustParseAddrPort("10.77.0.30:41641")}
			w.Connected(peer)
			was := w.MapFor(viewer)
			c.change(w, viewer, peer)
			is := w.MapFor(viewer)
			got := delta(was, is, w.clock)
			if shape(got) != c.want {
				body, _ := json.Marshal(got)
				t.Errorf("got %q, want %q: %s", shape(got), c.want, body)
			}
			if again := delta(is, w.MapFor(viewer), w.clock); len(again) != 0 {
				t.Errorf("said twice: %s", shape(again))
			}
		})
	}
}

func TestAnOfflinePatchSaysSinceWhen(t *testing.T) {
	w := newWorld(t, "")
	viewer, peer := w.join("viewer", "tag:worker"), w.join("peer", "tag:app")
	w.Connected(peer)
	was := w.MapFor(viewer)
	w.Disconnected(peer)
	left := w.clock
	w.clock = w.clock.Add(10 * time.Second)
	w.Tick()
	got := delta(was, w.MapFor(viewer), w.clock)
	if shape(got) != "patch" || *got[0].PeersChangedPatch[0].Online || !got[0].PeersChangedPatch[0].LastSeen.Equal(left) || got[0].PeersChangedPatch[0].NodeID != peer.ID {
		t.Errorf("got %s", shape(got))
	}
}

// apply is the client's side of a delta, as the documentation of tailcfg.MapResponse tells it.
func apply(m Netmap, messages []*tailcfg.MapResponse) Netmap {
	for _, msg := range messages {
		if msg.Node != nil {
			m.Self = msg.Node
		}
		if f, ok := msg.PacketFilters["base"]; ok {
			m.Filter = f
		}
		peers := map[tailcfg.NodeID]*tailcfg.Node{}
		for _, p := range m.Peers {
			peers[p.ID] = p
		}
		if len(msg.Peers) > 0 {
			peers = map[tailcfg.NodeID]*tailcfg.Node{}
		}
		for _, p := range append(msg.Peers, msg.PeersChanged...) {
			peers[p.ID] = p
		}
		for _, id := range msg.PeersRemoved {
			delete(peers, id)
		}
		for _, patch := range msg.PeersChangedPatch {
			p := *peers[patch.NodeID]
			if patch.Online != nil {
				p.Online = patch.Online
			}
			if patch.LastSeen != nil {
				p.LastSeen = patch.LastSeen
			}
			if len(patch.Endpoints) > 0 {
				p.Endpoints = patch.Endpoints
			}
			if patch.DERPRegion != 0 {
				p.HomeDERP = patch.DERPRegion
			}
			peers[patch.NodeID] = &p
		}
		m.Peers = nil
		for _, p := range peers {
			m.Peers = append(m.Peers, p)
		}
		slices.SortFunc(m.Peers, func(a, b *tailcfg.Node) int { return int(a.ID - b.ID) })
	}
	return m
}

func TestDeltasAddUpToTheWholeMap(t *testing.T) {
	w := newWorld(t, "")
	viewer := w.join("viewer", "tag:worker")
	known := w.MapFor(viewer)
	steps := []func(){
		func() { w.join("a", "tag:app") },
		func() { w.offer(w.join("b", "tag:exit")) },
		func() { w.Connected(w.Find("a")); w.Connected(w.Find("b")) },
		func() { w.state.Settings.OnlineOverride = map[string]*bool{"a": nil, "b": new(false)} },
		func() { w.state.Settings.OnlineOverride = nil },
		func() { w.Find("a").Endpoints = []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:1")} },
		func() { w.Find("a").Endpoints = nil },
		func() { w.unapprove(w.Find("b"), w.Find("b").Approved) },
		func() {
			w.policy, _ = ParsePolicy(`{"tagOwners": {"tag:app": [], "tag:exit": [], "tag:worker": []}, "acls": [{"action": "accept", "src": ["tag:worker"], "dst": ["tag:exit:22"]}]}`)
		},
		func() { w.remove(w.Find("b")) },
		func() { w.policy, _ = ParsePolicy(defaultPolicy) },
		func() { viewer.KeyExpiry = w.clock },
		func() { viewer.KeyExpiry = time.Time{} },
	}
	for i, step := range steps {
		step()
		whole := w.MapFor(viewer)
		known = apply(known, delta(known, whole, w.clock))
		// LastSeen of a peer that is online is nobody's business: clients keep the old one.
		for _, m := range []Netmap{known, whole} {
			for j, p := range m.Peers {
				if p.Online != nil && *p.Online {
					q := *p
					q.LastSeen = nil
					m.Peers[j] = &q
				}
			}
		}
		if !sameJSON(known, whole) {
			x, _ := json.MarshalIndent(known, "", " ")
			y, _ := json.MarshalIndent(whole, "", " ")
			t.Fatalf("after step %d the client knows\n%s\nthe map is\n%s", i, x, y)
		}
	}
}
