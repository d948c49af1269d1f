// What the policy means for the nodes that there are: who sees whom, who may use which exit node and route, and the
// packet filter of each node.

package main

import (
	"net/netip"
	"slices"

	"tailscale.com/net/tsaddr"
	"tailscale.com/tailcfg"
)

// internetRanges is autogroup:internet: all public addresses, as the hosted service writes them. Documentation ranges
// count as public, which labs live from.
var internetRanges = []string{
	"0.0.0.0-9.255.255.255",
	"11.0.0.0-100.63.255.255",
	"100.128.0.0-169.253.255.255",
	"169.255.0.0-172.15.255.255",
	"172.32.0.0-192.167.255.255",
	"192.169.0.0-255.255.255.255",
	"2000::/3",
}

// matches reports whether sel stands for the device n as such. Addresses are not devices.
func (p *Policy) matches(sel selector, n *Node) bool {
	switch sel.kind {
	case selAny, selEverywhere:
		return true
	case selTag:
		return slices.Contains(n.Tags, sel.word)
	case selUser:
		return !n.tagged() && n.login() == sel.word
	case selGroup:
		return !n.tagged() && slices.Contains(p.groups[sel.word], n.login())
	case selMember:
		return !n.tagged()
	case selTagged:
		return n.tagged()
	}
	return false
}

// srcAddrs returns those addresses of n that are sources of r.
func (p *Policy) srcAddrs(r rule, n *Node) []netip.Addr {
	var out []netip.Addr
	for _, addr := range n.addrs() {
		if slices.ContainsFunc(r.src, func(sel selector) bool {
			return p.matches(sel, n) || sel.kind == selPrefix && sel.prefix.Contains(addr)
		}) {
			out = append(out, addr)
		}
	}
	return out
}

// dstPrefixes returns what sel stands for on the device n: its addresses, and what lies behind it. Exit use is apart.
func (p *Policy) dstPrefixes(r rule, sel selector, n *Node) []netip.Prefix {
	viaOK := len(r.via) == 0 || slices.ContainsFunc(r.via, func(tag string) bool { return slices.Contains(n.Tags, tag) })
	var routes []netip.Prefix
	if viaOK {
		routes = n.routes()
	}
	switch sel.kind {
	case selAny:
		return append(n.addresses(), routes...)
	case selSelf:
		if n.tagged() {
			return nil
		}
		return n.addresses()
	case selPrefix:
		var out []netip.Prefix
		for _, own := range append(n.addresses(), routes...) {
			if own.Overlaps(sel.prefix) {
				out = append(out, narrower(own, sel.prefix))
			}
		}
		return out
	}
	if p.matches(sel, n) {
		return n.addresses()
	}
	return nil
}

func narrower(a, b netip.Prefix) netip.Prefix {
	if a.Bits() >= b.Bits() {
		return a
	}
	return b
}

// internetBy reports whether r lets its sources use n as their exit node. Whether n is one is not asked.
func (r rule) internetBy(n *Node) bool {
	return slices.ContainsFunc(r.dst, func(d dstPorts) bool { return d.sel.kind == selInternet }) &&
		(len(r.via) == 0 || slices.ContainsFunc(r.via, func(tag string) bool { return slices.Contains(n.Tags, tag) }))
}

// sameUser is what autogroup:self asks for.
func sameUser(a, b *Node) bool { return !a.tagged() && !b.tagged() && a.user() == b.user() }

// mayUseExit reports whether src may send Internet traffic through the exit node.
func (p *Policy) mayUseExit(src, exit *Node) bool {
	return exit.exit() && slices.ContainsFunc(p.rules, func(r rule) bool {
		return len(p.srcAddrs(r, src)) > 0 && r.internetBy(exit)
	})
}

// reaches reports whether any packet or capability of src is allowed at dst or behind it.
func (p *Policy) reaches(src, dst *Node) bool {
	return p.mayUseExit(src, dst) || slices.ContainsFunc(p.rules, func(r rule) bool {
		return len(p.srcAddrs(r, src)) > 0 && slices.ContainsFunc(r.dst, func(d dstPorts) bool {
			if d.sel.kind == selSelf && !sameUser(src, dst) {
				return false
			}
			return len(p.dstPrefixes(r, d.sel, dst)) > 0
		})
	})
}

// sees reports whether b is in a's network map: where one may reach the other, both know each other.
func (p *Policy) sees(a, b *Node) bool { return p.reaches(a, b) || p.reaches(b, a) }

// routesFor returns those subnet routes of peer that the policy lets viewer use.
func (p *Policy) routesFor(viewer, peer *Node) []netip.Prefix {
	var out []netip.Prefix
	for _, route := range peer.routes() {
		if slices.ContainsFunc(p.rules, func(r rule) bool {
			return len(p.srcAddrs(r, viewer)) > 0 && slices.ContainsFunc(r.dst, func(d dstPorts) bool {
				return slices.ContainsFunc(p.dstPrefixes(r, d.sel, peer), route.Overlaps)
			})
		}) {
			out = append(out, route)
		}
	}
	return out
}

// filterFor compiles the packet filter of n: what the others, all, may send to it or through it. It is never nil.
func (p *Policy) filterFor(n *Node, all []*Node) []tailcfg.FilterRule {
	out := []tailcfg.FilterRule{}
	for _, r := range p.rules {
		sources := p.srcWords(r, all, nil)
		for _, group := range groupByProtos(r.dst) {
			rule := tailcfg.FilterRule{SrcIPs: sources, IPProto: group.protos}
			self := tailcfg.FilterRule{SrcIPs: p.srcWords(r, all, n), IPProto: group.protos}
			for _, d := range group.dst {
				if d.sel.kind == selSelf {
					self.DstPorts = append(self.DstPorts, ports(prefixWords(p.dstPrefixes(r, d.sel, n)), d.ports)...)
					continue
				}
				rule.DstPorts = append(rule.DstPorts, ports(prefixWords(p.dstPrefixes(r, d.sel, n)), d.ports)...)
				if d.sel.kind == selInternet && n.exit() && r.internetBy(n) {
					rule.DstPorts = append(rule.DstPorts, ports(internetRanges, d.ports)...)
				}
			}
			for _, f := range []tailcfg.FilterRule{rule, self} {
				if len(f.SrcIPs) > 0 && len(f.DstPorts) > 0 {
					out = append(out, f)
				}
			}
		}
		if f, ok := p.capRule(r, n, sources, p.srcWords(r, all, n)); ok {
			out = append(out, f...)
		}
	}
	return out
}

// capRule is the part of a grant that gives capabilities instead of ports.
func (p *Policy) capRule(r rule, n *Node, sources, selfSources []string) ([]tailcfg.FilterRule, bool) {
	if len(r.app) == 0 {
		return nil, false
	}
	var out []tailcfg.FilterRule
	for _, d := range r.dst {
		srcs := sources
		if d.sel.kind == selSelf {
			srcs = selfSources
		}
		if dsts := p.dstPrefixes(r, d.sel, n); len(dsts) > 0 && len(srcs) > 0 {
			out = append(out, tailcfg.FilterRule{SrcIPs: srcs, CapGrant: []tailcfg.CapGrant{{Dsts: dsts, CapMap: r.app}}})
		}
	}
	return out, len(out) > 0
}

// srcWords lists the sources of r for a filter rule. With self, only those devices count that belong to its user.
func (p *Policy) srcWords(r rule, all []*Node, self *Node) []string {
	var prefixes []netip.Prefix
	if self == nil {
		for _, sel := range r.src {
			switch sel.kind {
			case selEverywhere:
				return []string{"*"}
			case selAny:
				prefixes = append(prefixes, tsaddr.CGNATRange(), tsaddr.TailscaleULARange())
				for _, n := range all {
					prefixes = append(prefixes, n.routes()...)
				}
			case selPrefix:
				prefixes = append(prefixes, sel.prefix)
			}
		}
	}
	for _, n := range all {
		if self != nil && !sameUser(n, self) {
			continue
		}
		for _, addr := range p.srcAddrs(r, n) {
			if !slices.ContainsFunc(prefixes, func(known netip.Prefix) bool { return known.Contains(addr) }) {
				prefixes = append(prefixes, netip.PrefixFrom(addr, addr.BitLen()))
			}
		}
	}
	sortPrefixes(prefixes)
	return prefixWords(slices.Compact(prefixes))
}

func prefixWords(prefixes []netip.Prefix) []string {
	var out []string
	for _, p := range prefixes {
		if p.IsSingleIP() {
			out = append(out, p.Addr().String())
		} else {
			out = append(out, p.String())
		}
	}
	return out
}

func ports(hosts []string, ranges []tailcfg.PortRange) []tailcfg.NetPortRange {
	var out []tailcfg.NetPortRange
	for _, host := range hosts {
		for _, r := range ranges {
			out = append(out, tailcfg.NetPortRange{IP: host, Ports: r})
		}
	}
	return out
}

type protoGroup struct {
	protos []int
	dst    []dstPorts
}

// groupByProtos keeps the order of first mention: a filter rule holds one set of protocols.
func groupByProtos(dst []dstPorts) []protoGroup {
	var out []protoGroup
	for _, d := range dst {
		i := slices.IndexFunc(out, func(g protoGroup) bool { return slices.Equal(g.protos, d.protos) })
		if i < 0 {
			out = append(out, protoGroup{protos: d.protos})
			i = len(out) - 1
		}
		out[i].dst = append(out[i].dst, d)
	}
	return out
}

// attrsOf lists the node attributes that the policy gives n.
func (p *Policy) attrsOf(n *Node) []string {
	var out []string
	for _, a := range p.attrs {
		if slices.ContainsFunc(a.target, func(sel selector) bool {
			return p.matches(sel, n) || sel.kind == selPrefix && slices.ContainsFunc(n.addrs(), sel.prefix.Contains)
		}) {
			out = append(out, a.attrs...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
