// The small words of a policy file: protocols, ports, prefixes.

package main

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"tailscale.com/tailcfg"
)

// protocols by IANA number, under the names that policy files use.
var protocols = map[string]int{
	"icmp": 1, "igmp": 2, "ipv4": 4, "ip-in-ip": 4, "tcp": 6, "egp": 8, "igp": 9, "udp": 17, "gre": 47, "esp": 50,
	"ah": 51, "ipv6-icmp": 58, "sctp": 132, "fc": 133,
}

var anyPort = []tailcfg.PortRange{{First: 0, Last: 65535}}

// parseProto reads a protocol's name or number. Empty means TCP, UDP and ICMP, which a filter rule says by no number.
func parseProto(text string) ([]int, error) {
	if text == "" {
		return nil, nil
	}
	if n, ok := protocols[strings.ToLower(text)]; ok {
		return []int{n}, nil
	}
	if n, err := strconv.Atoi(text); err == nil && n > 0 && n < 256 {
		return []int{n}, nil
	}
	return nil, fmt.Errorf("%q: unknown protocol", text)
}

// parsePorts reads "*", "443" or "80-90,443".
func parsePorts(text string) ([]tailcfg.PortRange, error) {
	if text == "*" {
		return anyPort, nil
	}
	var out []tailcfg.PortRange
	for _, part := range strings.Split(text, ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			last = first
		}
		a, errA := strconv.ParseUint(first, 10, 16)
		b, errB := strconv.ParseUint(last, 10, 16)
		if errA != nil || errB != nil || a == 0 || b < a {
			return nil, fmt.Errorf("%q: want a port, a range of ports, or *", part)
		}
		out = append(out, tailcfg.PortRange{First: uint16(a), Last: uint16(b)})
	}
	return out, nil
}

// parseGrantIP reads one word of a grant's ip list: "*", "443", "80-90", "tcp:443", "icmp:*".
func parseGrantIP(text string) ([]int, []tailcfg.PortRange, error) {
	proto, ports, ok := strings.Cut(text, ":")
	if !ok {
		proto, ports = "", text
	} else if proto == "" || proto == "*" {
		return nil, nil, fmt.Errorf("%q: unknown protocol", proto)
	}
	protos, err := parseProto(proto)
	if err != nil {
		return nil, nil, err
	}
	ranges, err := parsePorts(ports)
	return protos, ranges, err
}

// parsePrefix reads an address or a prefix; host bits are cut off.
func parsePrefix(text string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" {
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q: neither an address nor a prefix", text)
	}
	return prefix.Masked(), nil
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}
