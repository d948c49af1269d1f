// From the words of a policy file to rules: every name is looked up here, so that rules hold no unknown one.

package main

import (
	"errors"
	"fmt"
	"strings"

	"tailscale.com/net/tsaddr"
	"tailscale.com/tailcfg"
)

// reader turns the document into rules.
type reader struct {
	doc *document
	p   *Policy
}

func (r *reader) read() error {
	doc, p := r.doc, r.p
	for name, members := range doc.Groups {
		if !strings.HasPrefix(name, "group:") || name == "group:" {
			return fmt.Errorf("groups: %q: want a name like group:NAME", name)
		}
		for _, m := range members {
			if !strings.Contains(m, "@") || strings.Contains(m, ":") {
				return fmt.Errorf("groups: %s: %q: want a login name; groups cannot be nested", name, m)
			}
		}
	}
	p.groups = doc.Groups
	for name, value := range doc.Hosts {
		if strings.ContainsAny(name, "@:*") || name == "" {
			return fmt.Errorf("hosts: %q: not a host name", name)
		}
		if _, err := parsePrefix(value); err != nil {
			return fmt.Errorf("hosts: %s: %w", name, err)
		}
	}
	for tag := range doc.TagOwners {
		if err := tailcfg.CheckTag(tag); err != nil {
			return fmt.Errorf("tagOwners: %q: %w", tag, err)
		}
	}
	for tag, owners := range doc.TagOwners {
		sels, err := r.owners(owners)
		if err != nil {
			return fmt.Errorf("tagOwners: %s: %w", tag, err)
		}
		p.tagOwners[tag] = sels
	}
	for i, e := range doc.ACLs {
		if err := r.acl(fmt.Sprintf("acls[%d]", i), e); err != nil {
			return err
		}
	}
	for i, e := range doc.Grants {
		if err := r.grant(fmt.Sprintf("grants[%d]", i), e); err != nil {
			return err
		}
	}
	return r.approversAndAttrs()
}

func (r *reader) approversAndAttrs() error {
	var err error
	if r.p.exits, err = r.owners(r.doc.AutoApprovers.ExitNode); err != nil {
		return fmt.Errorf("autoApprovers: exitNode: %w", err)
	}
	for text, who := range r.doc.AutoApprovers.Routes {
		prefix, err := parsePrefix(text)
		if err != nil {
			return fmt.Errorf("autoApprovers: routes: %w", err)
		}
		if r.p.routes[prefix], err = r.owners(who); err != nil {
			return fmt.Errorf("autoApprovers: routes: %s: %w", text, err)
		}
	}
	for i, e := range r.doc.NodeAttrs {
		attr := nodeAttr{attrs: e.Attr}
		for _, word := range e.Target {
			sel, err := r.selector(word)
			if err == nil && (sel.kind == selSelf || sel.kind == selInternet || sel.kind == selEverywhere) {
				err = fmt.Errorf("%q: not a target", word)
			}
			if err != nil {
				return fmt.Errorf("nodeAttrs[%d]: target: %w", i, err)
			}
			attr.target = append(attr.target, sel)
		}
		r.p.attrs = append(r.p.attrs, attr)
	}
	return nil
}

// owners reads a list of people and tags that may own a tag or offer a route.
func (r *reader) owners(words []string) ([]selector, error) {
	var out []selector
	for _, word := range words {
		sel, err := r.selector(word)
		if err != nil {
			return nil, err
		}
		switch sel.kind {
		case selTag, selUser, selGroup, selMember:
		default:
			return nil, fmt.Errorf("%q: want a tag, a group, a login name or autogroup:admin", word)
		}
		out = append(out, sel)
	}
	return out, nil
}

// selector reads one word, in headscale's order: address, *, login name, group, tag, autogroup, host.
func (r *reader) selector(word string) (selector, error) {
	if prefix, err := parsePrefix(word); err == nil {
		return selector{kind: selPrefix, word: word, prefix: prefix}, nil
	}
	switch {
	case word == "":
		return selector{}, errors.New("an empty name")
	case word == "*":
		return selector{kind: selAny, word: word}, nil
	case strings.Contains(word, "@"):
		return selector{kind: selUser, word: word}, nil
	case strings.HasPrefix(word, "group:"):
		if _, ok := r.doc.Groups[word]; !ok {
			return selector{}, fmt.Errorf("%q: group not defined in groups", word)
		}
		return selector{kind: selGroup, word: word}, nil
	case strings.HasPrefix(word, "tag:"):
		if _, ok := r.doc.TagOwners[word]; !ok {
			return selector{}, fmt.Errorf("%q: tag not defined in tagOwners", word)
		}
		return selector{kind: selTag, word: word}, nil
	case strings.HasPrefix(word, "autogroup:"):
		kind, ok := map[string]selectorKind{
			"internet": selInternet, "self": selSelf, "member": selMember, "members": selMember, "tagged": selTagged,
			"admin": selMember, "owner": selMember, // the lab has one person, who is all of these
			"danger-all": selEverywhere,
		}[strings.TrimPrefix(word, "autogroup:")]
		if !ok {
			return selector{}, fmt.Errorf("%q: unknown autogroup", word)
		}
		return selector{kind: kind, word: word}, nil
	}
	if value, ok := r.doc.Hosts[word]; ok {
		prefix, err := parsePrefix(value)
		return selector{kind: selPrefix, word: word, prefix: prefix}, err
	}
	return selector{}, fmt.Errorf("%q: neither an address nor defined in hosts", word)
}

func (r *reader) sources(where string, words []string) ([]selector, error) {
	if len(words) == 0 {
		return nil, fmt.Errorf("%s: src is empty", where)
	}
	var out []selector
	for _, word := range words {
		sel, err := r.selector(word)
		if err == nil && (sel.kind == selSelf || sel.kind == selInternet) {
			err = fmt.Errorf("%q: not allowed as a source", word)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: src: %w", where, err)
		}
		out = append(out, sel)
	}
	return out, nil
}

func (r *reader) destination(word string) (selector, error) {
	sel, err := r.selector(word)
	if err == nil && sel.kind == selEverywhere {
		err = fmt.Errorf("%q: not allowed as a destination", word)
	}
	if err == nil && sel.kind == selPrefix && tsaddr.IsExitRoute(sel.prefix) {
		err = fmt.Errorf("%q: use autogroup:internet", word)
	}
	return sel, err
}

func (r *reader) acl(where string, e aclEntry) error {
	if e.Action != "accept" {
		return fmt.Errorf("%s: action %q: want accept", where, e.Action)
	}
	src, err := r.sources(where, e.Src)
	if err != nil {
		return err
	}
	protos, err := parseProto(e.Proto)
	if err != nil {
		return fmt.Errorf("%s: proto: %w", where, err)
	}
	if len(e.Dst) == 0 {
		return fmt.Errorf("%s: dst is empty", where)
	}
	out := rule{where: where, src: src}
	for _, word := range e.Dst {
		host, ports, ok := cutLast(word, ":")
		if !ok {
			return fmt.Errorf("%s: dst: %q: want HOST:PORTS", where, word)
		}
		if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
			host = host[1 : len(host)-1]
		}
		sel, err := r.destination(host)
		if err != nil {
			return fmt.Errorf("%s: dst: %w", where, err)
		}
		ranges, err := parsePorts(ports)
		if err != nil {
			return fmt.Errorf("%s: dst: %q: %w", where, word, err)
		}
		out.dst = append(out.dst, dstPorts{sel: sel, ports: ranges, protos: protos})
	}
	r.p.rules = append(r.p.rules, out)
	return nil
}

func (r *reader) grant(where string, e grantEntry) error {
	src, err := r.sources(where, e.Src)
	if err != nil {
		return err
	}
	if len(e.Dst) == 0 {
		return fmt.Errorf("%s: dst is empty", where)
	}
	if len(e.IP) == 0 && len(e.App) == 0 {
		return fmt.Errorf("%s: neither ip nor app", where)
	}
	for _, tag := range e.Via {
		if _, ok := r.doc.TagOwners[tag]; !ok {
			return fmt.Errorf("%s: via: %q: tag not defined in tagOwners", where, tag)
		}
	}
	out := rule{where: where, src: src, via: e.Via}
	for name, values := range e.App {
		if out.app == nil {
			out.app = tailcfg.PeerCapMap{}
		}
		out.app[tailcfg.PeerCapability(name)] = values
	}
	for _, word := range e.Dst {
		sel, err := r.destination(word)
		if err != nil {
			return fmt.Errorf("%s: dst: %w", where, err)
		}
		if sel.kind == selInternet && len(e.App) > 0 {
			return fmt.Errorf("%s: app cannot be granted on autogroup:internet", where)
		}
		if len(e.IP) == 0 {
			out.dst = append(out.dst, dstPorts{sel: sel})
		}
		for _, text := range e.IP {
			protos, ranges, err := parseGrantIP(text)
			if err != nil {
				return fmt.Errorf("%s: ip: %q: %w", where, text, err)
			}
			out.dst = append(out.dst, dstPorts{sel: sel, ports: ranges, protos: protos})
		}
	}
	r.p.rules = append(r.p.rules, out)
	return nil
}
