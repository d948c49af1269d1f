// Nodes: the devices of the tailnet, their names, addresses and routes.

package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"tailscale.com/net/tsaddr"
	"tailscale.com/tailcfg"
	"tailscale.com/types/key"
	"tailscale.com/util/dnsname"
)

// Users of a lab: one person, and the owner that Tailscale names for tagged devices.
const (
	labUser      tailcfg.UserID = 1
	taggedUser   tailcfg.UserID = 2
	labLogin                    = "lab@lab.example"
	taggedLogin                 = "tagged-devices"
	tailnetName                 = "lab.example"
	labUserTitle                = "Lab"
)

// Node is a device. The exported fields are the state file's.
type Node struct {
	ID            tailcfg.NodeID            `json:"id"`
	StableID      tailcfg.StableNodeID      `json:"stable_id"`
	Machine       key.MachinePublic         `json:"machine"`
	NodeKey       key.NodePublic            `json:"node_key"`
	KeyExpiry     time.Time                 `json:"key_expiry,omitzero"` // zero: never
	Tags          []string                  `json:"tags,omitempty"`      // none: it is the lab user's
	Name          string                    `json:"name"`                // its label in MagicDNS, unique
	Addr4         netip.Addr                `json:"addr4"`
	Addr6         netip.Addr                `json:"addr6"`
	Approved      []netip.Prefix            `json:"approved,omitempty"` // routes that it may serve, offered or not
	Ephemeral     bool                      `json:"ephemeral,omitempty"`
	Authorized    bool                      `json:"authorized"` // device approval
	KeyID         string                    `json:"key_id,omitempty"`
	Created       time.Time                 `json:"created"`
	LastSeen      time.Time                 `json:"last_seen"` // the end of its last map stream
	Online        bool                      `json:"online"`
	Hostinfo      *tailcfg.Hostinfo         `json:"hostinfo"` // never nil
	Endpoints     []netip.AddrPort          `json:"endpoints,omitempty"`
	EndpointTypes []tailcfg.EndpointType    `json:"endpoint_types,omitempty"`
	Disco         key.DiscoPublic           `json:"disco"`
	HomeDERP      int                       `json:"home_derp,omitempty"`
	Cap           tailcfg.CapabilityVersion `json:"cap"`

	connected bool      // a map stream is open
	closedAt  time.Time // the end of the last one
}

func (n *Node) tagged() bool { return len(n.Tags) > 0 }

func (n *Node) user() tailcfg.UserID {
	if n.tagged() {
		return taggedUser
	}
	return labUser
}

func (n *Node) login() string {
	if n.tagged() {
		return taggedLogin
	}
	return labLogin
}

func (n *Node) expiredAt(now time.Time) bool {
	return !n.KeyExpiry.IsZero() && !now.Before(n.KeyExpiry)
}

func (n *Node) addrs() []netip.Addr { return []netip.Addr{n.Addr4, n.Addr6} }

func (n *Node) addresses() []netip.Prefix {
	return []netip.Prefix{netip.PrefixFrom(n.Addr4, 32), netip.PrefixFrom(n.Addr6, 128)}
}

// advertised lists the routes that the device offers, sorted.
func (n *Node) advertised() []netip.Prefix {
	out := slices.Clone(n.Hostinfo.RoutableIPs)
	for i, p := range out {
		out[i] = p.Masked()
	}
	sortPrefixes(out)
	return slices.Compact(out)
}

// routes lists the subnet routes that it offers and may serve. Exit routes are not among them.
func (n *Node) routes() []netip.Prefix {
	var out []netip.Prefix
	for _, p := range n.advertised() {
		if !tsaddr.IsExitRoute(p) && slices.Contains(n.Approved, p) {
			out = append(out, p)
		}
	}
	return out
}

// exit reports whether it offers both exit routes and may serve them.
func (n *Node) exit() bool {
	offered := n.advertised()
	for _, p := range tsaddr.ExitRoutes() {
		if !slices.Contains(offered, p) || !slices.Contains(n.Approved, p) {
			return false
		}
	}
	return true
}

// Find returns the node with this stable id, numeric id, name or FQDN, or nil.
func (t *Tailnet) Find(ref string) *Node {
	ref = strings.TrimSuffix(strings.ToLower(ref), ".")
	for _, n := range t.state.Nodes {
		if strings.EqualFold(string(n.StableID), ref) || fmt.Sprint(int64(n.ID)) == ref {
			return n
		}
	}
	label := strings.TrimSuffix(ref, "."+t.domain)
	for _, n := range t.state.Nodes {
		if n.Name == label {
			return n
		}
	}
	return nil
}

func (t *Tailnet) byKey(k key.NodePublic) *Node {
	for _, n := range t.state.Nodes {
		if n.NodeKey == k {
			return n
		}
	}
	return nil
}

func (t *Tailnet) byMachine(m key.MachinePublic) *Node {
	for _, n := range t.state.Nodes {
		if n.Machine == m {
			return n
		}
	}
	return nil
}

func (t *Tailnet) fqdn(n *Node) string { return n.Name + "." + t.domain + "." }

// addNode makes a device that nobody has heard of yet.
func (t *Tailnet) addNode(machine key.MachinePublic) (*Node, error) {
	addr4, addr6, err := t.nextAddrs()
	if err != nil {
		return nil, err
	}
	n := &Node{
		ID:       tailcfg.NodeID(t.state.NextID),
		StableID: tailcfg.StableNodeID("n" + randomID(10) + "CNTRL"),
		Machine:  machine,
		Addr4:    addr4,
		Addr6:    addr6,
		Created:  t.now().UTC().Truncate(time.Second),
		LastSeen: t.now().UTC().Truncate(time.Second),
		Hostinfo: &tailcfg.Hostinfo{},
		closedAt: t.now(),
	}
	t.state.NextID++
	t.state.Nodes = append(t.state.Nodes, n)
	return n, nil
}

// nextAddrs counts up and never gives an address twice: a deleted device's address shall not mean another one.
func (t *Tailnet) nextAddrs() (netip.Addr, netip.Addr, error) {
	base4, base6 := tsaddr.CGNATRange().Addr().As4(), tsaddr.TailscaleULARange().Addr().As16()
	for host := t.state.NextAddr; host < 1<<22-1; host++ {
		a4, a6 := base4, base6
		for i := range 4 {
			octet := byte(host >> (8 * (3 - i)))
			a4[i] |= octet
			a6[12+i] |= octet
		}
		addr4, addr6 := netip.AddrFrom4(a4), netip.AddrFrom16(a6)
		if addr4 == tsaddr.TailscaleServiceIP() || addr6 == tsaddr.TailscaleServiceIPv6() || tsaddr.ChromeOSVMRange().Contains(addr4) {
			continue
		}
		t.state.NextAddr = host + 1
		return addr4, addr6, nil
	}
	return netip.Addr{}, netip.Addr{}, errors.New("no address is left")
}

// rename gives every node its label: what its host is called where nobody else is, else that with -1, -2, ...
// Who holds a plain name keeps it; when its holder goes, it falls to the oldest that wants it.
func (t *Tailnet) rename() {
	taken := map[string]bool{}
	var others []*Node
	for _, n := range t.state.Nodes {
		if base := labelOf(n.Hostinfo.Hostname); n.Name == base && !taken[base] {
			taken[base] = true
		} else {
			others = append(others, n)
		}
	}
	for _, n := range others {
		base := labelOf(n.Hostinfo.Hostname)
		name := base
		if number, ok := strings.CutPrefix(n.Name, base+"-"); ok && isNumber(number) && taken[base] && !taken[n.Name] {
			name = n.Name
		}
		for i := 1; taken[name]; i++ {
			name = fmt.Sprintf("%s-%d", base, i)
		}
		taken[name] = true
		if n.Name != name {
			if n.Name != "" {
				t.event(Event{Kind: "rename", Node: name, ID: string(n.StableID), Detail: "was " + n.Name})
			}
			n.Name = name
		}
	}
}

func isNumber(s string) bool {
	n, err := strconv.Atoi(s)
	return err == nil && n > 0
}

func labelOf(hostname string) string {
	return cmp.Or(dnsname.FirstLabel(dnsname.SanitizeHostname(hostname)), "device")
}

// setHostinfo takes over what a device says of itself, and approves what may be approved without an admin.
func (t *Tailnet) setHostinfo(n *Node, hi *tailcfg.Hostinfo) {
	if hi == nil {
		return
	}
	before := n.advertised()
	n.Hostinfo = hi
	if hi.NetInfo != nil && hi.NetInfo.PreferredDERP != 0 {
		n.HomeDERP = hi.NetInfo.PreferredDERP
	}
	t.rename()
	t.autoApprove(n, before)
}

// autoApprove approves what n offers now and did not before. Approval that an admin has withdrawn stays withdrawn
// until the device stops offering and offers anew, as on the hosted service.
func (t *Tailnet) autoApprove(n *Node, before []netip.Prefix) {
	var fresh []netip.Prefix
	for _, p := range n.advertised() {
		if slices.Contains(before, p) {
			continue
		}
		if tsaddr.IsExitRoute(p) {
			if t.state.Settings.AutoApproveExit || t.policy.autoApprovesExit(n) {
				fresh = append(fresh, p)
			}
		} else if t.policy.autoApprovesRoute(n, p) {
			fresh = append(fresh, p)
		}
	}
	if len(fresh) > 0 {
		t.approve(n, fresh, "auto")
	}
}

// approve adds routes; one exit route stands for both.
func (t *Tailnet) approve(n *Node, routes []netip.Prefix, by string) {
	for _, p := range bothExits(routes) {
		if !slices.Contains(n.Approved, p) {
			n.Approved = append(n.Approved, p)
		}
	}
	sortPrefixes(n.Approved)
	t.nodeEvent("approve", n, by+": "+joinPrefixes(n.Approved))
}

func (t *Tailnet) unapprove(n *Node, routes []netip.Prefix) {
	gone := bothExits(routes)
	n.Approved = slices.DeleteFunc(n.Approved, func(p netip.Prefix) bool { return slices.Contains(gone, p) })
	t.nodeEvent("unapprove", n, joinPrefixes(gone))
}

func bothExits(routes []netip.Prefix) []netip.Prefix {
	if slices.ContainsFunc(routes, tsaddr.IsExitRoute) {
		routes = append(slices.Clone(routes), tsaddr.ExitRoutes()...)
	}
	out := slices.Clone(routes)
	sortPrefixes(out)
	return slices.Compact(out)
}

// remove deletes a device. Its own map stream, if one is open, stays open and hears nothing any more.
func (t *Tailnet) remove(n *Node) {
	t.state.Nodes = slices.DeleteFunc(t.state.Nodes, func(o *Node) bool { return o == n })
	t.nodeEvent("delete", n, "")
	t.rename()
}

func (t *Tailnet) has(n *Node) bool { return slices.Contains(t.state.Nodes, n) }

// retag models what production does when a running device asks for other tags than before: it gets them where the
// tags that it has own them, else its key expires, so that it has to log in again.
func (t *Tailnet) retag(n *Node, requested []string) {
	want := sortedTags(requested)
	if slices.Equal(want, sortedTags(n.Hostinfo.RequestTags)) || slices.Equal(want, sortedTags(n.Tags)) {
		return
	}
	allowed := len(want) > 0 || !n.tagged()
	for _, tag := range want {
		allowed = allowed && (slices.Contains(n.Tags, tag) || t.policy.mayOwnTag(tag, n.Tags))
	}
	if !allowed {
		n.KeyExpiry = t.now().UTC()
		t.nodeEvent("retag-denied", n, "key expired: "+errTags(want).Error())
		return
	}
	n.Tags = want
	t.nodeEvent("retag", n, strings.Join(want, " "))
}

func (t *Tailnet) nodeEvent(kind string, n *Node, detail string) {
	t.event(Event{Kind: kind, Node: n.Name, ID: string(n.StableID), KeyID: n.KeyID, Detail: detail})
}

func sortPrefixes(p []netip.Prefix) {
	slices.SortFunc(p, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
}

func joinPrefixes(p []netip.Prefix) string {
	words := make([]string, len(p))
	for i := range p {
		words[i] = p[i].String()
	}
	return strings.Join(words, " ")
}
