// The policy file: HuJSON read strictly into rules. A word that would be ignored is an error.
//
// filter.go says what the rules mean for a given set of nodes.

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/tailscale/hujson"
	"tailscale.com/tailcfg"
)

// defaultPolicy holds where there is no policy file: everybody may reach everybody and the Internet.
const defaultPolicy = `// The lab's default policy: everybody reaches every device on every port, and the Internet by any exit node.
{
	"tagOwners": {
		"tag:worker":       ["autogroup:admin"],
		"tag:exit":         ["autogroup:admin"],
		"tag:app":          ["autogroup:admin"],
		"tag:k8s-operator": ["autogroup:admin"],
		"tag:k8s":          ["autogroup:admin", "tag:k8s-operator"],
	},
	"grants": [
		{"src": ["*"], "dst": ["*"], "ip": ["*"]},
		{"src": ["*"], "dst": ["autogroup:internet"], "ip": ["*"]},
	],
	"autoApprovers": {
		"exitNode": ["tag:exit"],
	},
}
`

// Policy is a policy file that was found good.
type Policy struct {
	text      string
	tagOwners map[string][]selector
	groups    map[string][]string
	rules     []rule
	exits     []selector                  // autoApprovers.exitNode
	routes    map[netip.Prefix][]selector // autoApprovers.routes
	attrs     []nodeAttr
	warnings  []string
}

// rule is one entry of acls or grants.
type rule struct {
	where string // for messages: acls[0]
	src   []selector
	dst   []dstPorts
	via   []string
	app   tailcfg.PeerCapMap
}

// dstPorts is a destination with the ports on it. One rule may hold several with different ports.
type dstPorts struct {
	sel    selector
	ports  []tailcfg.PortRange
	protos []int
}

type nodeAttr struct {
	target []selector
	attrs  []string
}

type selectorKind int

const (
	selAny selectorKind = iota
	selTag
	selUser
	selGroup
	selMember
	selTagged
	selSelf
	selInternet
	selEverywhere // autogroup:danger-all
	selPrefix
)

// selector is a word of the policy that stands for devices or addresses.
type selector struct {
	kind   selectorKind
	word   string // as written: a tag, a login name, a group
	prefix netip.Prefix
}

// document is the file as it is written.
type document struct {
	Groups        map[string][]string `json:"groups"`
	Hosts         map[string]string   `json:"hosts"`
	TagOwners     map[string][]string `json:"tagOwners"`
	ACLs          []aclEntry          `json:"acls"`
	Grants        []grantEntry        `json:"grants"`
	AutoApprovers autoApproversEntry  `json:"autoApprovers"`
	NodeAttrs     []nodeAttrEntry     `json:"nodeAttrs"`
}

type aclEntry struct {
	Action string   `json:"action"`
	Src    []string `json:"src"`
	Proto  string   `json:"proto"`
	Dst    []string `json:"dst"`
}

type grantEntry struct {
	Src []string                        `json:"src"`
	Dst []string                        `json:"dst"`
	IP  []string                        `json:"ip"`
	App map[string][]tailcfg.RawMessage `json:"app"`
	Via []string                        `json:"via"`
}

type autoApproversEntry struct {
	Routes   map[string][]string `json:"routes"`
	ExitNode []string            `json:"exitNode"`
}

type nodeAttrEntry struct {
	Target []string `json:"target"`
	Attr   []string `json:"attr"`
}

// Sections that a real policy file may hold and that change nothing here. Leaving one out of account never opens
// anything: without an ssh section nobody may, and tests only judge.
var ignoredSections = []string{"ssh", "tests", "sshTests", "randomizeClientPort", "disableIPv4", "OneCGNATRoute"}

// loadPolicy reads the file, or takes the default where there is none.
func loadPolicy(path string) (*Policy, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return ParsePolicy(defaultPolicy)
	}
	if err != nil {
		return nil, fmt.Errorf("policy file: %w", err)
	}
	p, err := ParsePolicy(string(text))
	if err != nil {
		return nil, fmt.Errorf("policy file %s: %w", path, err)
	}
	return p, nil
}

// ParsePolicy reads a policy file. The error names the place.
func ParsePolicy(text string) (*Policy, error) {
	standard, err := hujson.Standardize([]byte(text))
	if err != nil {
		return nil, err
	}
	p := &Policy{text: text, tagOwners: map[string][]selector{}, routes: map[netip.Prefix][]selector{}}
	var sections map[string]json.RawMessage
	if err := json.Unmarshal(standard, &sections); err != nil {
		return nil, fmt.Errorf("want an object: %w", err)
	}
	for _, name := range ignoredSections {
		if _, ok := sections[name]; ok {
			delete(sections, name)
			p.warnings = append(p.warnings, fmt.Sprintf("section %q is not acted on by the lab's control server", name))
		}
	}
	_, hasACLs := sections["acls"]
	_, hasGrants := sections["grants"]
	known, err := json.Marshal(sections)
	if err != nil {
		return nil, err
	}
	var doc document
	dec := json.NewDecoder(bytes.NewReader(known))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&doc); err != nil {
		return nil, fmt.Errorf("%s", strings.TrimPrefix(err.Error(), "json: "))
	}
	r := reader{doc: &doc, p: p}
	if err := r.read(); err != nil {
		return nil, err
	}
	if !hasACLs && !hasGrants {
		// The hosted service denies all here, headscale allows all; the lab stands in for the former.
		p.warnings = append(p.warnings, "neither acls nor grants: nothing is allowed")
	}
	return p, nil
}

// undefinedTags returns those that the policy does not know.
func (p *Policy) undefinedTags(tags []string) []string {
	var out []string
	for _, tag := range tags {
		if _, ok := p.tagOwners[tag]; !ok {
			out = append(out, tag)
		}
	}
	return out
}

// mayOwnTag reports whether a device with tags, or the lab's user where it has none, may give itself tag.
func (p *Policy) mayOwnTag(tag string, tags []string) bool {
	for _, owner := range p.tagOwners[tag] {
		if p.matches(owner, &Node{Tags: tags}) {
			return true
		}
	}
	return false
}

func (p *Policy) autoApprovesExit(n *Node) bool {
	return slices.ContainsFunc(p.exits, func(s selector) bool { return p.matches(s, n) })
}

// autoApprovesRoute reports whether n may serve route, which lies within a listed prefix. A /0 among the routes
// approves no exit route.
func (p *Policy) autoApprovesRoute(n *Node, route netip.Prefix) bool {
	for prefix, who := range p.routes {
		if prefix.Bits() <= route.Bits() && prefix.Contains(route.Addr()) &&
			slices.ContainsFunc(who, func(s selector) bool { return p.matches(s, n) }) {
			return true
		}
	}
	return false
}
