// Builders that the tests share: a tailnet with a clock of its own, and a server on free ports.

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"tailscale.com/net/tsaddr"
	"tailscale.com/tailcfg"
	"tailscale.com/types/key"
)

// world is a tailnet without a server around it.
type world struct {
	*Tailnet
	t     *testing.T
	clock time.Time
}

func newWorld(t *testing.T, policy string) *world {
	t.Helper()
	if policy == "" {
		policy = defaultPolicy
	}
	p, err := ParsePolicy(policy)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, clock: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	w.Tailnet = NewTailnet(newState(), p, "tail1234.ts.net", func() time.Time { return w.clock })
	return w
}

func (w *world) key(req KeyRequest) (id, text string) {
	w.t.Helper()
	k, text, err := w.CreateKey(req)
	if err != nil {
		w.t.Fatal(err)
	}
	return k.ID, text
}

// device is a machine that has yet to join.
type device struct {
	machine key.MachinePublic
	node    key.NodePublic
	old     key.NodePublic
	host    *tailcfg.Hostinfo
}

func newDevice(hostname string) *device {
	return &device{machine: key.NewMachine().Public(), node: key.NewNode().Public(), host: &tailcfg.Hostinfo{Hostname: hostname}}
}

// rotate gives the device a new node key, as a client does that logs in again.
func (d *device) rotate() { d.old, d.node = d.node, key.NewNode().Public() }

func (d *device) request(authKey string) *tailcfg.RegisterRequest {
	req := &tailcfg.RegisterRequest{Version: 140, NodeKey: d.node, OldNodeKey: d.old, Hostinfo: d.host.Clone()}
	if authKey != "" {
		req.Auth = &tailcfg.RegisterResponseAuth{AuthKey: authKey}
	}
	return req
}

func (w *world) register(d *device, authKey string) Verdict {
	return w.Register(d.machine, d.request(authKey))
}

// join adds a device with a key of its own, which has reported once.
func (w *world) join(hostname string, tags ...string) *Node {
	w.t.Helper()
	_, text := w.key(KeyRequest{Tags: tags, Preauthorized: true})
	v := w.register(newDevice(hostname), text)
	if v.Node == nil {
		w.t.Fatalf("join %s: %+v", hostname, v)
	}
	v.Node.Disco = key.NewDisco().Public()
	return v.Node
}

// offer makes n offer routes from now on; none means both exit routes.
func (w *world) offer(n *Node, routes ...string) {
	hi := n.Hostinfo.Clone()
	hi.RoutableIPs = prefixes(routes...)
	if len(routes) == 0 {
		hi.RoutableIPs = tsaddr.ExitRoutes()
	}
	w.setHostinfo(n, hi)
}

func prefixes(words ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, word := range words {
		out = append(out, netip.MustParsePrefix(word))
	}
	return out
}

// testServer is a running server in a folder of its own.
type testServer struct {
	*Server
	t   *testing.T
	cfg Config
}

func startServer(t *testing.T) *testServer {
	t.Helper()
	dir, err := os.MkdirTemp("", "labctl") // t.TempDir makes paths too long for a unix socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &testServer{t: t, cfg: Config{
		Listen:      netip.MustParseAddrPort("127.0.0.1:0"),
		DERPIP:      netip.MustParseAddr("127.0.0.1"),
		Domain:      "tail1234.ts.net",
		StateFile:   filepath.Join(dir, "state.json"),
		PolicyFile:  filepath.Join(dir, "policy.hujson"),
		AdminSocket: filepath.Join(dir, "admin.sock"),
		OAuthID:     "lab",
		OAuthSecret: "lab-secret",
	}}
	s.start()
	t.Cleanup(func() { s.stop() })
	return s
}

func (s *testServer) start() {
	s.t.Helper()
	var err error
	if s.Server, err = Start(s.cfg); err != nil {
		s.t.Fatal(err)
	}
	// A restart answers where the first one did.
	s.cfg.Listen = netip.MustParseAddrPort(s.Addr())
	s.cfg.STUNPort = uint16(s.STUNPort())
}

func (s *testServer) stop() {
	s.t.Helper()
	if err := s.Close(); err != nil {
		s.t.Error(err)
	}
}

func (s *testServer) url() string { return "http://" + s.Addr() }

// admin calls the admin API and returns the status and the body.
func (s *testServer) admin(method, path, body string) (int, string) {
	s.t.Helper()
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", s.cfg.AdminSocket)
		},
	}}
	req, err := http.NewRequest(method, "http://labctl"+path, bytes.NewBufferString(body))
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// must is admin for calls that have to succeed; out may be nil.
func (s *testServer) must(method, path, body string, out any) {
	s.t.Helper()
	status, text := s.admin(method, path, body)
	if status != http.StatusOK {
		s.t.Fatalf("%s %s: %d %s", method, path, status, text)
	}
	if out != nil {
		if err := json.Unmarshal([]byte(text), out); err != nil {
			s.t.Fatalf("%s %s: %v in %s", method, path, err, text)
		}
	}
}

func (s *testServer) newKey(body string) (id, text string) {
	s.t.Helper()
	var k keyView
	s.must("POST", "/keys", body, &k)
	return k.ID, k.Key
}

func (s *testServer) nodes() map[string]nodeView {
	s.t.Helper()
	var list []nodeView
	s.must("GET", "/nodes", "", &list)
	out := map[string]nodeView{}
	for _, n := range list {
		out[n.Name] = n
	}
	return out
}

// eventually waits for a condition, generously.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}
