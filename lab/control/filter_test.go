package main

import (
	"net/netip"
	"testing"

	"go4.org/netipx"
	"tailscale.com/tailcfg"
	"tailscale.com/types/ipproto"
	"tailscale.com/types/logger"
	"tailscale.com/wgengine/filter"
)

// accepts asks the client's own packet filter, given ours, about one packet.
func accepts(t *testing.T, rules []tailcfg.FilterRule, proto ipproto.Proto, src, dst string) bool {
	t.Helper()
	matches, err := filter.MatchesFromFilterRules(rules)
	if err != nil {
		t.Fatal(err)
	}
	var local, logs netipx.IPSetBuilder
	local.AddPrefix(netip.MustParsePrefix("0.0.0.0/0"))
	local.AddPrefix(netip.MustParsePrefix("::/0"))
	localSet, _ := local.IPSet()
	logSet, _ := logs.IPSet()
	f := filter.New(matches, nil, localSet, logSet, nil, logger.Discard)
	from, to := netip.MustParseAddrPort(src), netip.MustParseAddrPort(dst)
	return f.Check(from.Addr(), to.Addr(), to.Port(), proto) == filter.Accept
}

func TestThePacketFilterSaysWhatThePolicySays(t *testing.T) {
	const tags = `"tagOwners": {"tag:worker": [], "tag:app": [], "tag:exit": []}, `
	// Nodes: worker 100.64.0.1, app 100.64.0.2 (with 10.1.0.0/16 behind it), exit 100.64.0.3, mine 100.64.0.4
	for _, c := range []struct {
		name, rules, at string
		proto           ipproto.Proto
		src, dst        string
		want            bool
	}{
		{"default: any port", "", "app", ipproto.TCP, "100.64.0.1:1000", "100.64.0.2:8080", true},
		{"default: over IPv6", "", "app", ipproto.UDP, "[fd7a:115c:a1e0::1]:1000", "[fd7a:115c:a1e0::2]:53", true},
		{"default: not from outside", "", "app", ipproto.TCP, "192.0.2.1:1000", "100.64.0.2:8080", false},
		{"default: the Internet by the exit", "", "exit", ipproto.TCP, "100.64.0.1:1000", "203.0.113.9:80", true},
		{"default: the Internet by the exit, IPv6", "", "exit", ipproto.TCP, "[fd7a:115c:a1e0::1]:1000", "[2001:db8:203::9]:80", true},
		{"default: private ranges are no Internet", "", "exit", ipproto.TCP, "100.64.0.1:1000", "10.9.9.9:80", false},
		{"default: link-local is no Internet", "", "exit", ipproto.TCP, "100.64.0.1:1000", "169.254.169.254:80", false},
		{"default: the tailnet is no Internet", "", "exit", ipproto.TCP, "100.64.0.1:1000", "100.64.0.2:80", false},
		{"default: who is no exit forwards nothing", "", "app", ipproto.TCP, "100.64.0.1:1000", "203.0.113.9:80", false},
		{"default: a route behind", "", "app", ipproto.TCP, "100.64.0.1:1000", "10.1.2.3:80", true},
		{"one port: that port", tags + `"acls": [{"action": "accept", "src": ["tag:worker"], "dst": ["tag:app:8080"]}]`, "app", ipproto.TCP, "100.64.0.1:1000", "100.64.0.2:8080", true},
		{"one port: another", tags + `"acls": [{"action": "accept", "src": ["tag:worker"], "dst": ["tag:app:8080"]}]`, "app", ipproto.TCP, "100.64.0.1:1000", "100.64.0.2:8081", false},
		{"one port: another source", tags + `"acls": [{"action": "accept", "src": ["tag:worker"], "dst": ["tag:app:8080"]}]`, "app", ipproto.TCP, "100.64.0.3:1000", "100.64.0.2:8080", false},
		{"one port: the way back", tags + `"acls": [{"action": "accept", "src": ["tag:worker"], "dst": ["tag:app:8080"]}]`, "worker", ipproto.TCP, "100.64.0.2:1000", "100.64.0.1:8080", false},
		{"one port: without proto, UDP too", tags + `"acls": [{"action": "accept", "src": ["tag:worker"], "dst": ["tag:app:53"]}]`, "app", ipproto.UDP, "100.64.0.1:1000", "100.64.0.2:53", true},
		{"a proto: that one", tags + `"acls": [{"action": "accept", "proto": "udp", "src": ["tag:worker"], "dst": ["tag:app:53"]}]`, "app", ipproto.UDP, "100.64.0.1:1000", "100.64.0.2:53", true},
		{"a proto: another", tags + `"acls": [{"action": "accept", "proto": "udp", "src": ["tag:worker"], "dst": ["tag:app:53"]}]`, "app", ipproto.TCP, "100.64.0.1:1000", "100.64.0.2:53", false},
		{"a grant with two protos: the first", tags + `"grants": [{"src": ["tag:worker"], "dst": ["tag:app"], "ip": ["tcp:443", "udp:53"]}]`, "app", ipproto.TCP, "100.64.0.1:1000", "100.64.0.2:443", true},
		{"a grant with two protos: crossed", tags + `"grants": [{"src": ["tag:worker"], "dst": ["tag:app"], "ip": ["tcp:443", "udp:53"]}]`, "app", ipproto.UDP, "100.64.0.1:1000", "100.64.0.2:443", false},
		{"all to all is no Internet", tags + `"acls": [{"action": "accept", "src": ["*"], "dst": ["*:*"]}]`, "exit", ipproto.TCP, "100.64.0.1:1000", "203.0.113.9:80", false},
		{"the Internet, some ports: that one", tags + `"acls": [{"action": "accept", "src": ["tag:worker"], "dst": ["autogroup:internet:443"]}]`, "exit", ipproto.TCP, "100.64.0.1:1000", "203.0.113.9:443", true},
		{"the Internet, some ports: another", tags + `"acls": [{"action": "accept", "src": ["tag:worker"], "dst": ["autogroup:internet:443"]}]`, "exit", ipproto.TCP, "100.64.0.1:1000", "203.0.113.9:80", false},
		{"the Internet via another tag", tags + `"grants": [{"src": ["tag:worker"], "dst": ["autogroup:internet"], "ip": ["*"], "via": ["tag:app"]}]`, "exit", ipproto.TCP, "100.64.0.1:1000", "203.0.113.9:80", false},
		{"a host behind a route", tags + `"acls": [{"action": "accept", "src": ["tag:worker"], "dst": ["10.1.2.3:80"]}]`, "app", ipproto.TCP, "100.64.0.1:1000", "10.1.2.3:80", true},
		{"its neighbour", tags + `"acls": [{"action": "accept", "src": ["tag:worker"], "dst": ["10.1.2.3:80"]}]`, "app", ipproto.TCP, "100.64.0.1:1000", "10.1.2.4:80", false},
		{"a host behind nobody", tags + `"acls": [{"action": "accept", "src": ["tag:worker"], "dst": ["10.2.2.3:80"]}]`, "app", ipproto.TCP, "100.64.0.1:1000", "10.2.2.3:80", false},
		{"a literal address is one family", tags + `"acls": [{"action": "accept", "src": ["100.64.0.1"], "dst": ["tag:app:80"]}]`, "app", ipproto.TCP, "[fd7a:115c:a1e0::1]:1000", "[fd7a:115c:a1e0::2]:80", false},
		{"people: mine", tags + `"acls": [{"action": "accept", "src": ["autogroup:member"], "dst": ["*:*"]}]`, "app", ipproto.TCP, "100.64.0.4:1000", "100.64.0.2:80", true},
		{"people: not a tagged one", tags + `"acls": [{"action": "accept", "src": ["autogroup:member"], "dst": ["*:*"]}]`, "app", ipproto.TCP, "100.64.0.1:1000", "100.64.0.2:80", false},
		{"danger-all: from outside", tags + `"acls": [{"action": "accept", "src": ["autogroup:danger-all"], "dst": ["tag:app:80"]}]`, "app", ipproto.TCP, "192.0.2.1:1000", "100.64.0.2:80", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, policyText(c.rules))
			w.join("worker", "tag:worker")
			app, exit := w.join("app", "tag:app"), w.join("exit", "tag:exit")
			w.join("mine")
			w.offer(app, "10.1.0.0/16")
			w.approve(app, prefixes("10.1.0.0/16"), "test")
			w.offer(exit)
			rules := w.MapFor(w.Find(c.at)).Filter
			if got := accepts(t, rules, c.proto, c.src, c.dst); got != c.want {
				t.Errorf("accepted: %v, by %+v", got, rules)
			}
		})
	}
}

func TestAFilterOfNothingIsStillSaid(t *testing.T) {
	w := newWorld(t, `{"acls": []}`)
	n := w.join("x")
	if m := w.MapFor(n); m.Filter == nil {
		t.Error("nil means unchanged on the wire")
	}
}

func TestCapabilitiesOfAGrantReachTheDestination(t *testing.T) {
	w := newWorld(t, `{"tagOwners": {"tag:worker": [], "tag:app": []}, "grants": [{"src": ["tag:worker"], "dst": ["tag:app"], "app": {"x.example/cap": [{"a": 1}]}}]}`)
	worker, app := w.join("worker", "tag:worker"), w.join("app", "tag:app")
	got := w.MapFor(app).Filter
	if len(got) != 1 || len(got[0].CapGrant) != 1 || len(got[0].DstPorts) != 0 || got[0].CapGrant[0].CapMap["x.example/cap"][0] != `{"a":1}` {
		t.Errorf("got %+v", got)
	}
	if got := w.MapFor(worker).Filter; len(got) != 0 {
		t.Errorf("the source got %+v", got)
	}
}

func TestANodeOfSeveralThatOfferARouteServesIt(t *testing.T) {
	w := newWorld(t, `{"tagOwners": {"tag:app": []}, "acls": [{"action": "accept", "src": ["*"], "dst": ["*:*"]}], "autoApprovers": {"routes": {"10.1.0.0/16": ["tag:app"]}}}`)
	viewer, first, second := w.join("viewer"), w.join("first", "tag:app"), w.join("second", "tag:app")
	w.offer(first, "10.1.0.0/16")
	w.offer(second, "10.1.0.0/16")
	serving := func() (out []string) {
		for _, p := range w.MapFor(viewer).Peers {
			if len(p.PrimaryRoutes) > 0 {
				out = append(out, p.Name)
			}
		}
		return out
	}
	if got := serving(); len(got) != 1 || got[0] != "first.tail1234.ts.net." {
		t.Errorf("both away: %v", got)
	}
	w.Connected(second)
	if got := serving(); len(got) != 1 || got[0] != "second.tail1234.ts.net." {
		t.Errorf("the second online: %v", got)
	}
	w.Connected(first)
	if got := serving(); len(got) != 1 || got[0] != "first.tail1234.ts.net." {
		t.Errorf("both online: %v", got)
	}
}
