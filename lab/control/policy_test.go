package main

import (
	"slices"
	"strings"
	"testing"
)

func TestABadPolicyIsRefusedWithItsPlace(t *testing.T) {
	const tags = `"tagOwners": {"tag:a": []}, `
	for name, c := range map[string]struct{ text, want string }{
		"not HuJSON":                     {`{"acls": [`, "line 1"},
		"a list":                         {`[]`, "want an object"},
		"an unknown section":             {`{"alcs": []}`, `unknown field "alcs"`},
		"an unknown field":               {`{"acls": [{"action": "accept", "source": ["*"], "dst": ["*:*"]}]}`, `unknown field "source"`},
		"postures, which would narrow":   {`{"postures": {}}`, `unknown field "postures"`},
		"another action":                 {`{"acls": [{"action": "drop", "src": ["*"], "dst": ["*:*"]}]}`, "acls[0]: action"},
		"a tag that nobody owns":         {`{"acls": [{"action": "accept", "src": ["tag:b"], "dst": ["*:*"]}]}`, `"tag:b": tag not defined`},
		"a tag that starts with a digit": {`{"tagOwners": {"tag:1": []}}`, "tagOwners"},
		"a tag owned by an address":      {`{"tagOwners": {"tag:a": ["10.0.0.1"]}}`, "tagOwners: tag:a"},
		"a group that is not there":      {`{"acls": [{"action": "accept", "src": ["group:x"], "dst": ["*:*"]}]}`, "group not defined"},
		"a group in a group":             {`{"groups": {"group:a": ["group:b"], "group:b": []}}`, "cannot be nested"},
		"a group without its prefix":     {`{"groups": {"a": []}}`, "group:NAME"},
		"a host that is not there":       {`{"acls": [{"action": "accept", "src": ["*"], "dst": ["db:5432"]}]}`, "nor defined in hosts"},
		"a host without an address":      {`{"hosts": {"db": "nowhere"}}`, "hosts: db"},
		"no port":                        {`{"acls": [{"action": "accept", "src": ["*"], "dst": ["*"]}]}`, "HOST:PORTS"},
		"port 0":                         {`{"acls": [{"action": "accept", "src": ["*"], "dst": ["*:0"]}]}`, "want a port"},
		"a port too many":                {`{"acls": [{"action": "accept", "src": ["*"], "dst": ["*:80,"]}]}`, "want a port"},
		"a range backwards":              {`{"acls": [{"action": "accept", "src": ["*"], "dst": ["*:90-80"]}]}`, "want a port"},
		"an unknown protocol":            {`{"acls": [{"action": "accept", "src": ["*"], "proto": "quic", "dst": ["*:*"]}]}`, "unknown protocol"},
		"proto *":                        {`{"acls": [{"action": "accept", "src": ["*"], "proto": "*", "dst": ["*:*"]}]}`, "unknown protocol"},
		"no source":                      {`{"acls": [{"action": "accept", "dst": ["*:*"]}]}`, "src is empty"},
		"no destination":                 {`{"acls": [{"action": "accept", "src": ["*"]}]}`, "dst is empty"},
		"the Internet as a source":       {`{"acls": [{"action": "accept", "src": ["autogroup:internet"], "dst": ["*:*"]}]}`, "not allowed as a source"},
		"self as a source":               {`{"acls": [{"action": "accept", "src": ["autogroup:self"], "dst": ["*:*"]}]}`, "not allowed as a source"},
		"danger-all as a destination":    {`{"acls": [{"action": "accept", "src": ["*"], "dst": ["autogroup:danger-all:*"]}]}`, "not allowed as a destination"},
		"an unknown autogroup":           {`{"acls": [{"action": "accept", "src": ["autogroup:robots"], "dst": ["*:*"]}]}`, "unknown autogroup"},
		"a grant of nothing":             {`{"grants": [{"src": ["*"], "dst": ["*"]}]}`, "neither ip nor app"},
		"the Internet as 0.0.0.0/0":      {`{"grants": [{"src": ["*"], "dst": ["0.0.0.0/0"], "ip": ["*"]}]}`, "use autogroup:internet"},
		"an app on the Internet":         {`{"grants": [{"src": ["*"], "dst": ["autogroup:internet"], "app": {"x.example/cap": []}}]}`, "app cannot be granted"},
		"via a tag that nobody owns":     {`{"grants": [{"src": ["*"], "dst": ["autogroup:internet"], "ip": ["*"], "via": ["tag:b"]}]}`, "via"},
		"an exit approver by address":    {`{"autoApprovers": {"exitNode": ["10.0.0.1"]}}`, "autoApprovers: exitNode"},
		"a route that is none":           {`{` + tags + `"autoApprovers": {"routes": {"ten": ["tag:a"]}}}`, "autoApprovers: routes"},
		"an attribute for self":          {`{"nodeAttrs": [{"target": ["autogroup:self"], "attr": ["x"]}]}`, "nodeAttrs[0]"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ParsePolicy(c.text); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want something with %q", err, c.want)
			}
		})
	}
}

func TestAGoodPolicyIsRead(t *testing.T) {
	for name, text := range map[string]string{
		"empty":            `{}`,
		"the default":      defaultPolicy,
		"comments, commas": "// why\n{ /* because */ \"acls\": [], }",
		"every selector": `{
			"groups": {"group:dev": ["a@example.com", "lab@lab.example"]},
			"hosts": {"db": "100.64.0.9", "net": "10.0.0.0/8"},
			"tagOwners": {"tag:a": ["autogroup:admin", "group:dev", "tag:a", "a@example.com", "autogroup:member"]},
			"acls": [
				{"action": "accept", "src": ["*", "tag:a", "group:dev", "a@example.com", "autogroup:member", "autogroup:tagged", "db", "10.0.0.1", "fd00::/64", "autogroup:danger-all"],
				 "dst": ["*:*", "tag:a:22,80-90", "db:5432", "net:*", "10.0.0.1:1", "[fd00::1]:443", "fd00::/64:*", "autogroup:self:*", "autogroup:internet:443", "autogroup:member:*", "a@example.com:*"]},
				{"action": "accept", "src": ["*"], "proto": "ipv6-icmp", "dst": ["*:*"]},
				{"action": "accept", "src": ["*"], "proto": "47", "dst": ["*:*"]},
			],
			"grants": [{"src": ["tag:a"], "dst": ["autogroup:internet"], "ip": ["tcp:443", "80-90,443", "*", "icmp:*"], "via": ["tag:a"]}],
			"nodeAttrs": [{"target": ["*"], "attr": ["funnel"]}],
		}`,
	} {
		if _, err := ParsePolicy(text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSectionsThatAreNotActedOnAreSaid(t *testing.T) {
	p, err := ParsePolicy(`{"ssh": [], "tests": [{"src": "x"}], "acls": []}`)
	if err != nil || len(p.warnings) != 2 || !strings.Contains(strings.Join(p.warnings, " "), `"ssh"`) {
		t.Errorf("%v: %v", err, p)
	}
}

func TestWhoMayUseAnExitNode(t *testing.T) {
	const tags = `"tagOwners": {"tag:worker": [], "tag:exit": [], "tag:other": []}, `
	for name, c := range map[string]struct {
		rules string
		want  bool
	}{
		"the default policy":                {"", true},
		"all to all does not mean Internet": {tags + `"acls": [{"action": "accept", "src": ["*"], "dst": ["*:*"]}]`, false},
		"the Internet by ACL":               {tags + `"acls": [{"action": "accept", "src": ["tag:worker"], "dst": ["autogroup:internet:*"]}]`, true},
		"the Internet by ACL, some ports":   {tags + `"acls": [{"action": "accept", "src": ["tag:worker"], "dst": ["autogroup:internet:443"]}]`, true},
		"the Internet by grant":             {tags + `"grants": [{"src": ["tag:worker"], "dst": ["autogroup:internet"], "ip": ["*"]}]`, true},
		"by grant via another tag":          {tags + `"grants": [{"src": ["tag:worker"], "dst": ["autogroup:internet"], "ip": ["*"], "via": ["tag:other"]}]`, false},
		"by grant via its tag":              {tags + `"grants": [{"src": ["tag:worker"], "dst": ["autogroup:internet"], "ip": ["*"], "via": ["tag:other", "tag:exit"]}]`, true},
		"for another source":                {tags + `"acls": [{"action": "accept", "src": ["tag:other"], "dst": ["autogroup:internet:*"]}]`, false},
		"for people only":                   {tags + `"acls": [{"action": "accept", "src": ["autogroup:member"], "dst": ["autogroup:internet:*"]}]`, false},
		"for tagged devices":                {tags + `"acls": [{"action": "accept", "src": ["autogroup:tagged"], "dst": ["autogroup:internet:*"]}]`, true},
		"for its address":                   {tags + `"acls": [{"action": "accept", "src": ["100.64.0.1"], "dst": ["autogroup:internet:*"]}]`, true},
		"present but empty":                 {tags + `"acls": []`, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, policyText(c.rules))
			worker, exit := w.join("worker", "tag:worker"), w.join("exit", "tag:exit")
			if w.policy.mayUseExit(worker, exit) {
				t.Fatal("a node that offers nothing is an exit node")
			}
			w.offer(exit)
			peer := findPeer(w.MapFor(worker), exit)
			offered := peer != nil && slices.Contains(peer.AllowedIPs, prefixes("0.0.0.0/0")[0]) && slices.Contains(peer.AllowedIPs, prefixes("::/0")[0])
			if offered != c.want {
				t.Errorf("offered: %v", offered)
			}
			w.unapprove(exit, exit.Approved)
			if peer := findPeer(w.MapFor(worker), exit); peer != nil && len(peer.AllowedIPs) != 2 {
				t.Errorf("without approval, the exit node still owns %v", peer.AllowedIPs)
			}
		})
	}
}

// policyText makes a file of some rules; none means the default policy.
func policyText(rules string) string {
	if rules == "" {
		return ""
	}
	return "{" + rules + "}"
}

func TestWhoSeesWhom(t *testing.T) {
	const tags = `"tagOwners": {"tag:worker": [], "tag:app": [], "tag:exit": []}, `
	for name, c := range map[string]struct {
		rules string
		want  []string // pairs that see each other, both ways
	}{
		"the default policy":         {"", []string{"app+exit", "app+mine", "app+worker", "exit+mine", "exit+worker", "mine+worker"}},
		"nothing":                    {tags + `"acls": []`, nil},
		"no rules at all":            {tags + `"hosts": {}`, nil},
		"one port one way":           {tags + `"acls": [{"action": "accept", "src": ["tag:worker"], "dst": ["tag:app:8080"]}]`, []string{"app+worker"}},
		"only the Internet":          {tags + `"acls": [{"action": "accept", "src": ["tag:worker"], "dst": ["autogroup:internet:*"]}]`, []string{"exit+worker"}},
		"an address":                 {tags + `"hosts": {"app-host": "100.64.0.2"}, "acls": [{"action": "accept", "src": ["tag:worker"], "dst": ["app-host:1"]}]`, []string{"app+worker"}},
		"a route behind":             {tags + `"acls": [{"action": "accept", "src": ["tag:worker"], "dst": ["10.1.2.3:1"]}]`, []string{"app+worker"}},
		"another route":              {tags + `"acls": [{"action": "accept", "src": ["tag:worker"], "dst": ["10.2.2.3:1"]}]`, nil},
		"people":                     {tags + `"acls": [{"action": "accept", "src": ["lab@lab.example"], "dst": ["tag:app:1"]}]`, []string{"app+mine"}},
		"a group":                    {tags + `"groups": {"group:g": ["lab@lab.example"]}, "acls": [{"action": "accept", "src": ["group:g"], "dst": ["tag:app:1"]}]`, []string{"app+mine"}},
		"self, of whom there is one": {tags + `"acls": [{"action": "accept", "src": ["*"], "dst": ["autogroup:self:*"]}]`, nil},
		"an app capability":          {tags + `"grants": [{"src": ["tag:worker"], "dst": ["tag:app"], "app": {"x.example/cap": []}}]`, []string{"app+worker"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, policyText(c.rules))
			w.state.Settings.AutoApproveExit = true
			all := []*Node{w.join("worker", "tag:worker"), w.join("app", "tag:app"), w.join("exit", "tag:exit"), w.join("mine")}
			w.offer(all[1], "10.1.0.0/16")
			w.approve(all[1], prefixes("10.1.0.0/16"), "test")
			w.offer(all[2])
			var got []string
			for _, a := range all {
				for _, p := range w.MapFor(a).Peers {
					b := w.Find(string(p.StableID))
					if findPeer(w.MapFor(b), a) == nil {
						t.Errorf("%s sees %s, not the other way", a.Name, b.Name)
					}
					if a.Name < b.Name {
						got = append(got, a.Name+"+"+b.Name)
					}
				}
			}
			slices.Sort(got)
			if !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestSelfMeansDevicesOfOneUser(t *testing.T) {
	w := newWorld(t, `{"tagOwners": {"tag:app": []}, "acls": [{"action": "accept", "src": ["autogroup:member"], "dst": ["autogroup:self:22"]}]}`)
	a, b, app := w.join("a"), w.join("b"), w.join("app", "tag:app")
	if !w.policy.sees(a, b) || w.policy.sees(a, app) {
		t.Error("self is the wrong set")
	}
	got := w.policy.filterFor(a, w.state.Nodes)
	if len(got) != 1 || slices.Contains(got[0].SrcIPs, app.Addr4.String()) || !slices.Contains(got[0].SrcIPs, b.Addr4.String()) {
		t.Errorf("filter %+v", got)
	}
	if got := w.policy.filterFor(app, w.state.Nodes); len(got) != 0 {
		t.Errorf("a tagged device is somebody's: %+v", got)
	}
}
