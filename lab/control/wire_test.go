package main

// The server over its wire, against Tailscale's own protocol client.

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"tailscale.com/control/tsp"
	"tailscale.com/net/tsaddr"
	"tailscale.com/tailcfg"
	"tailscale.com/types/key"
)

// wireNode is a node that speaks the control protocol and carries no packets.
type wireNode struct {
	t          *testing.T
	client     *tsp.Client
	key        key.NodePrivate
	disco      key.DiscoPublic
	hostname   string
	offersExit bool
}

func newWireNode(t *testing.T, s *testServer, hostname string) *wireNode {
	t.Helper()
	client, err := tsp.NewClient(tsp.ClientOpts{ServerURL: s.url(), MachineKey: key.NewMachine()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return &wireNode{t: t, client: client, key: key.NewNode(), disco: key.NewDisco().Public(), hostname: hostname}
}

func (n *wireNode) hostinfo() *tailcfg.Hostinfo {
	hi := &tailcfg.Hostinfo{Hostname: n.hostname, OS: "linux"}
	if n.offersExit {
		hi.RoutableIPs = tsaddr.ExitRoutes()
	}
	return hi
}

func (n *wireNode) register(authKey string) (*tailcfg.RegisterResponse, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return n.client.Register(ctx, tsp.RegisterOpts{NodeKey: n.key, AuthKey: authKey, Hostinfo: n.hostinfo()})
}

func (n *wireNode) report() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return n.client.SendMapUpdate(ctx, tsp.SendMapUpdateOpts{NodeKey: n.key, DiscoKey: n.disco, Hostinfo: n.hostinfo()})
}

// mapStream collects what a node hears.
type mapStream struct {
	t     *testing.T
	close context.CancelFunc
	news  chan *tailcfg.MapResponse
	once  sync.Once
}

func (n *wireNode) stream() *mapStream {
	n.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	session, err := n.client.Map(ctx, tsp.MapOpts{NodeKey: n.key, Hostinfo: n.hostinfo(), Stream: true})
	if err != nil {
		cancel()
		n.t.Fatal(err)
	}
	m := &mapStream{t: n.t, close: cancel, news: make(chan *tailcfg.MapResponse, 100)}
	go func() {
		defer close(m.news)
		defer session.Close()
		for {
			msg, err := session.Next()
			if err != nil {
				return
			}
			m.news <- msg
		}
	}()
	n.t.Cleanup(cancel)
	return m
}

// next returns the next message that ok accepts.
func (m *mapStream) next(what string, ok func(*tailcfg.MapResponse) bool) *tailcfg.MapResponse {
	m.t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		select {
		case msg, open := <-m.news:
			if !open {
				m.t.Fatalf("the stream ended before: %s", what)
			}
			if ok(msg) {
				return msg
			}
		case <-deadline:
			m.t.Fatalf("not within 30 s: %s", what)
		}
	}
}

func (m *mapStream) first() *tailcfg.MapResponse {
	return m.next("the first map", func(msg *tailcfg.MapResponse) bool { return msg.Node != nil && msg.DERPMap != nil })
}

func mentions(name string) func(*tailcfg.MapResponse) bool {
	return func(msg *tailcfg.MapResponse) bool {
		for _, p := range append(msg.Peers, msg.PeersChanged...) {
			if strings.HasPrefix(p.Name, name+".") {
				return true
			}
		}
		return false
	}
}

// joinWith lets a node join by key, report, and leave.
func joinWith(t *testing.T, s *testServer, hostname, authKey string) nodeView {
	t.Helper()
	n := newWireNode(t, s, hostname)
	if _, err := n.register(authKey); err != nil {
		t.Fatal(err)
	}
	if err := n.report(); err != nil {
		t.Fatal(err)
	}
	return s.nodes()[hostname]
}

func join(t *testing.T, s *testServer, hostname, keyRequest string) nodeView {
	t.Helper()
	_, text := s.newKey(keyRequest)
	return joinWith(t, s, hostname, text)
}

// online lets a node join and stay.
func online(t *testing.T, s *testServer, hostname, tag string) (*wireNode, *mapStream) {
	t.Helper()
	_, text := s.newKey(`{"tags":["` + tag + `"]}`)
	n := newWireNode(t, s, hostname)
	if _, err := n.register(text); err != nil {
		t.Fatal(err)
	}
	if err := n.report(); err != nil {
		t.Fatal(err)
	}
	m := n.stream()
	return n, m
}

func TestPeersHearOfEachOther(t *testing.T) {
	s := startServer(t)
	_, app := online(t, s, "app", "tag:app")
	first := app.first()
	if first.Node.Name != "app.tail1234.ts.net." || len(first.Peers) != 0 || len(first.PacketFilters["base"]) == 0 ||
		len(first.DERPMap.Regions) != 1 || first.DNSConfig.Domains[0] != "tail1234.ts.net" {
		t.Errorf("first map %+v", first)
	}
	_, worker := online(t, s, "worker", "tag:worker")
	if !mentions("app")(worker.first()) {
		t.Error("the worker's first map lacks the app")
	}
	app.next("the worker has joined", mentions("worker"))
}

func TestOfflineIsToldByPatchAfterTheGrace(t *testing.T) {
	s := startServer(t)
	s.must("PUT", "/settings", `{"offline_grace_ms": 300}`, nil)
	_, app := online(t, s, "app", "tag:app")
	app.first()
	worker, stream := online(t, s, "worker", "tag:worker")
	stream.first()
	app.next("the worker is online", func(msg *tailcfg.MapResponse) bool {
		return saysOnline(msg, true)
	})
	closed := time.Now()
	stream.close()
	app.next("the worker is offline", func(msg *tailcfg.MapResponse) bool { return len(msg.PeersChangedPatch) == 1 && saysOnline(msg, false) })
	if d := time.Since(closed); d < 300*time.Millisecond {
		t.Errorf("told after %v, before the grace was over", d)
	}
	worker.stream().first()
	app.next("the worker is back", func(msg *tailcfg.MapResponse) bool { return len(msg.PeersChangedPatch) == 1 && saysOnline(msg, true) })
}

func saysOnline(msg *tailcfg.MapResponse, want bool) bool {
	for _, p := range msg.PeersChangedPatch {
		if p.Online != nil && *p.Online == want {
			return true
		}
	}
	for _, p := range msg.PeersChanged {
		if p.Online != nil && *p.Online == want {
			return true
		}
	}
	return false
}

func TestASecondStreamEndsTheFirstAndTheNodeStaysOnline(t *testing.T) {
	s := startServer(t)
	s.must("PUT", "/settings", `{"offline_grace_ms": 0}`, nil)
	app, old := online(t, s, "app", "tag:app")
	old.first()
	app.stream().first()
	for deadline, open := time.After(30*time.Second), true; open; {
		select {
		case _, open = <-old.news:
		case <-deadline:
			t.Fatal("the first stream is still open")
		}
	}
	if n := s.nodes()["app"]; !*n.Online || !n.Connected {
		t.Errorf("got %+v", n)
	}
}

func TestNewsIsHeldBackAndTheFirstMapIsNot(t *testing.T) {
	s := startServer(t)
	_, app := online(t, s, "app", "tag:app")
	app.first()
	s.must("PUT", "/settings", `{"batch_ms": 1000}`, nil)
	before := time.Now()
	_, worker := online(t, s, "worker", "tag:worker")
	worker.first()
	if d := time.Since(before); d > 900*time.Millisecond {
		t.Errorf("the join itself took %v", d)
	}
	app.next("the worker has joined", mentions("worker"))
	if d := time.Since(before); d < time.Second {
		t.Errorf("told after %v", d)
	}
}

func TestEveryAnswerIsSlowWhenToldSo(t *testing.T) {
	s := startServer(t)
	_, text := s.newKey(`{"tags":["tag:app"]}`)
	s.must("PUT", "/settings", `{"slow_ms": 300}`, nil)
	n := newWireNode(t, s, "app")
	before := time.Now()
	if _, err := n.register(text); err != nil { // the server's key, the handshake, the registration
		t.Fatal(err)
	}
	if d := time.Since(before); d < 900*time.Millisecond {
		t.Errorf("three answers took %v", d)
	}
	before = time.Now()
	n.stream().first()
	if d := time.Since(before); d < 300*time.Millisecond {
		t.Errorf("the first map took %v", d)
	}
}

func TestADeletedNodeIsLeftInTheDark(t *testing.T) {
	s := startServer(t)
	_, app := online(t, s, "app", "tag:app")
	app.first()
	worker, stream := online(t, s, "worker", "tag:worker")
	id := stream.first().Node.ID
	app.next("the worker has joined", mentions("worker"))
	s.must("DELETE", "/nodes/worker", "", nil)
	app.next("the worker is gone", func(msg *tailcfg.MapResponse) bool { return len(msg.PeersRemoved) == 1 && msg.PeersRemoved[0] == id })

	// Whatever happens now, its stream is open and silent.
	online(t, s, "late", "tag:app")
	app.next("late has joined", mentions("late"))
	select {
	case msg, open := <-stream.news:
		if !open || mentions("late")(msg) {
			t.Errorf("open %v: %+v", open, msg)
		}
	case <-time.After(300 * time.Millisecond):
	}
	if err := worker.report(); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("its report: %v", err)
	}
	if resp, err := worker.register(""); err != nil || resp.AuthURL == "" {
		t.Errorf("its return without a key: %v %+v", err, resp)
	}
	_, text := s.newKey(`{"tags":["tag:worker"]}`)
	worker.key = key.NewNode()
	if _, err := worker.register(text); err != nil {
		t.Error(err)
	}
	if again := worker.stream().first().Node; again.ID == id {
		t.Error("it came back as who it was")
	}
}

func TestNodesComeBackAfterARestartAndWereNeverOffline(t *testing.T) {
	s := startServer(t)
	app, stream := online(t, s, "app", "tag:app")
	stream.first()
	worker, _ := online(t, s, "worker", "tag:worker")
	before := s.nodes()
	s.stop()
	s.start()
	if n := s.nodes()["app"]; n.Connected || !*n.Online || n.ID != before["app"].ID {
		t.Errorf("right after the restart: %+v", n)
	}
	// Without a key, by the same server key.
	if resp, err := app.register(""); err != nil || resp.AuthURL != "" {
		t.Errorf("return: %v %+v", err, resp)
	}
	m := app.stream()
	if first := m.first(); !mentions("worker")(first) || !*first.Peers[0].Online {
		t.Errorf("the app's map after the restart: %+v", first.Peers)
	}
	if _, err := worker.register(""); err != nil {
		t.Error(err)
	}
}

func TestTheOnlineOverrideIsToldUntilItIsTakenBack(t *testing.T) {
	s := startServer(t)
	_, app := online(t, s, "app", "tag:app")
	app.first()
	_, worker := online(t, s, "worker", "tag:worker")
	worker.first()
	app.next("the worker is online", func(msg *tailcfg.MapResponse) bool { return saysOnline(msg, true) })
	s.must("PUT", "/settings", `{"online_override": {"worker": false}}`, nil)
	app.next("offline by order", func(msg *tailcfg.MapResponse) bool { return saysOnline(msg, false) })
	s.must("PUT", "/settings", `{"online_override": {"worker": null}}`, nil)
	app.next("not said", func(msg *tailcfg.MapResponse) bool { return len(msg.Peers) == 1 && msg.Peers[0].Online == nil })
	if n := s.nodes()["worker"]; n.Online != nil || !n.Connected {
		t.Errorf("got %+v", n)
	}
	s.must("PUT", "/settings", `{"online_override": {}}`, nil)
	app.next("as it is", func(msg *tailcfg.MapResponse) bool { return saysOnline(msg, true) })
}

func TestARefusedKeyIsRefusedInTheWordsOfTheSetting(t *testing.T) {
	s := startServer(t)
	_, text := s.newKey(`{"tags":["tag:app"]}`)
	s.must("PUT", "/settings", `{"refuse_keys": "no entry today"}`, nil)
	n := newWireNode(t, s, "app")
	if _, err := n.register(text); err == nil || err.Error() != "register: no entry today" {
		t.Errorf("got %v", err)
	}
	s.must("PUT", "/settings", `{"refuse_keys": null}`, nil)
	if _, err := n.register(text); err != nil {
		t.Errorf("the key was used up by the refusal: %v", err)
	}
	_, events := s.admin("GET", "/events", "")
	if !strings.Contains(events, `"event":"deny","node":"app"`) || !strings.Contains(events, `"event":"register","node":"app"`) {
		t.Errorf("events: %s", events)
	}
}
