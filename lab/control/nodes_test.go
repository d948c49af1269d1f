package main

import (
	"slices"
	"testing"
	"time"

	"tailscale.com/net/tsaddr"
)

func names(w *world) []string {
	var out []string
	for _, n := range w.state.Nodes {
		out = append(out, n.Name)
	}
	return out
}

func TestANameFallsToItsHeir(t *testing.T) {
	w := newWorld(t, "")
	old := w.join("exit", "tag:exit")
	heir := w.join("exit", "tag:exit")
	third := w.join("Exit.local", "tag:exit")
	if got := names(w); !slices.Equal(got, []string{"exit", "exit-1", "exit-2"}) {
		t.Fatalf("three of one name: %v", got)
	}
	w.remove(old)
	if heir.Name != "exit" || third.Name != "exit-2" {
		t.Errorf("after the first was deleted: %v", names(w))
	}
	if w.Find("exit") != heir || w.Find("EXIT.tail1234.ts.net.") != heir || w.Find(string(heir.StableID)) != heir || w.Find("exit-1") != nil {
		t.Error("found by the wrong name")
	}
}

func TestARenamedHostDoesNotTakeANameThatIsHeld(t *testing.T) {
	w := newWorld(t, "")
	older, holder := w.join("db", "tag:app"), w.join("app", "tag:app")
	hi := older.Hostinfo.Clone()
	hi.Hostname = "app"
	w.setHostinfo(older, hi)
	if older.Name != "app-1" || holder.Name != "app" {
		t.Errorf("got %v", names(w))
	}
}

func TestAddressesAreNeverGivenTwice(t *testing.T) {
	w := newWorld(t, "")
	first := w.join("a", "tag:app")
	if first.Addr4.String() != "100.64.0.1" || first.Addr6.String() != "fd7a:115c:a1e0::1" {
		t.Errorf("first addresses %v %v", first.Addr4, first.Addr6)
	}
	w.remove(first)
	if again := w.join("a", "tag:app"); again.Addr4 == first.Addr4 || again.ID == first.ID || again.StableID == first.StableID {
		t.Error("a deleted device's identity was given again")
	}
}

func TestAddressesOfServicesAreSkipped(t *testing.T) {
	w := newWorld(t, "")
	for _, start := range []uint32{0x53, 100<<8<<8 - 64<<16 + 100<<8 + 100, 51<<16 + 92<<8} {
		w.state.NextAddr = start
		a4, a6, err := w.nextAddrs()
		if err != nil {
			t.Fatal(err)
		}
		if a6 == tsaddr.TailscaleServiceIPv6() || a4 == tsaddr.TailscaleServiceIP() || tsaddr.ChromeOSVMRange().Contains(a4) || !tsaddr.CGNATRange().Contains(a4) {
			t.Errorf("from %#x: %v %v", start, a4, a6)
		}
	}
	w.state.NextAddr = 1<<22 - 1
	if _, _, err := w.nextAddrs(); err == nil {
		t.Error("an address beyond the range was given")
	}
}

func TestExitRoutesAreApprovedByWhomThePolicyOrTheSettingSays(t *testing.T) {
	for _, c := range []struct {
		name    string
		setting bool
		tag     string
		want    bool
	}{
		{"setting off, tag listed", false, "tag:exit", true},
		{"setting off, tag not listed", false, "tag:app", false},
		{"setting on, tag not listed", true, "tag:app", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, "")
			w.state.Settings.AutoApproveExit = c.setting
			n := w.join("x", c.tag)
			w.offer(n)
			if n.exit() != c.want {
				t.Errorf("exit node: %v", n.exit())
			}
		})
	}
}

func TestWithdrawnApprovalStaysWithdrawnUntilOfferedAnew(t *testing.T) {
	w := newWorld(t, "")
	n := w.join("x", "tag:exit")
	w.offer(n)
	w.unapprove(n, prefixes("::/0"))
	if n.exit() || len(n.Approved) != 0 {
		t.Fatalf("one withdrawn stands for both: %v", n.Approved)
	}
	w.offer(n) // a restart reports the same
	if n.exit() {
		t.Error("a mere report approved it again")
	}
	w.offer(n, "10.1.0.0/16")
	w.offer(n)
	if !n.exit() {
		t.Error("offered anew, it was not approved")
	}
	w.offer(n, "10.1.0.0/16")
	if n.exit() {
		t.Error("it is an exit node without offering to be")
	}
}

func TestOneExitRouteApprovedStandsForBoth(t *testing.T) {
	w := newWorld(t, "")
	w.state.Settings.AutoApproveExit = false
	n := w.join("x", "tag:app")
	w.offer(n)
	if err := nodeVerbs["approve"](w.Tailnet, n, nodeRequest{Routes: prefixes("0.0.0.0/0")}); err != nil || !n.exit() {
		t.Errorf("%v: %v", err, n.Approved)
	}
}

func TestSubnetRoutesAreApprovedWithinAListedPrefix(t *testing.T) {
	w := newWorld(t, `{"tagOwners": {"tag:app": []}, "grants": [], "autoApprovers": {"routes": {"10.1.0.0/16": ["tag:app"], "0.0.0.0/0": ["tag:app"]}}}`)
	w.state.Settings.AutoApproveExit = false
	n := w.join("x", "tag:app")
	w.offer(n, "10.1.2.0/24", "0.0.0.0/0", "::/0", "fd00::/64")
	if !slices.Equal(n.Approved, prefixes("10.1.2.0/24")) {
		t.Errorf("approved %v", n.Approved)
	}
}

func TestOnlineEndsSomeTimeAfterTheStream(t *testing.T) {
	w := newWorld(t, "")
	n := w.join("x", "tag:app")
	w.Connected(n)
	w.Disconnected(n)
	closed := w.clock
	if next := w.Tick(); !n.Online || !next.Equal(closed.Add(10*time.Second)) {
		t.Fatalf("online %v, next %v", n.Online, next)
	}
	w.clock = closed.Add(9 * time.Second)
	w.Connected(n)
	w.clock = closed.Add(time.Hour)
	w.Tick()
	if !n.Online {
		t.Error("back within the grace, and yet offline")
	}
	w.Disconnected(n)
	w.clock = w.clock.Add(10 * time.Second)
	w.Tick()
	if n.Online || !n.LastSeen.Equal(closed.Add(time.Hour)) {
		t.Errorf("online %v, last seen %v", n.Online, n.LastSeen)
	}
}

func TestAnEphemeralNodeIsRemovedWhenItHasBeenAway(t *testing.T) {
	w := newWorld(t, "")
	_, text := w.key(KeyRequest{Ephemeral: true})
	n := w.register(newDevice("x"), text).Node
	w.Tick()
	if !w.has(n) {
		t.Fatal("removed before it could open a stream")
	}
	w.Connected(n)
	w.clock = w.clock.Add(24 * time.Hour)
	w.Tick()
	w.Disconnected(n)
	w.clock = w.clock.Add(29 * time.Minute)
	if w.Tick(); !w.has(n) {
		t.Fatal("removed too soon")
	}
	w.clock = w.clock.Add(time.Minute)
	if w.Tick(); w.has(n) {
		t.Error("still there")
	}
}

func TestTheClockIsWokenForAKeyThatWillExpire(t *testing.T) {
	w := newWorld(t, "")
	n := w.join("x", "tag:app")
	if err := nodeVerbs["expire"](w.Tailnet, n, nodeRequest{AfterSeconds: 1.5}); err != nil {
		t.Fatal(err)
	}
	if next := w.Tick(); !next.Equal(w.clock.Add(1500 * time.Millisecond)) {
		t.Errorf("next %v", next)
	}
}
