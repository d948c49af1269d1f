package main

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
)

func TestAMistakeIsSaidAsJSONWithAMessage(t *testing.T) {
	s := startServer(t)
	join(t, s, "app", `{"tags":["tag:app"]}`)
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/", "", 404, "GET /: not found"},
		{"GET", "/nope", "", 404, "not found"},
		{"PATCH", "/settings", "{}", 405, "method not allowed"},
		{"POST", "/keys", "{", 400, "body"},
		{"POST", "/keys", `{"tag":["tag:app"]}`, 400, `unknown field "tag"`},
		{"POST", "/keys", `{"tags":["tag:nowhere"]}`, 400, "requested tags [tag:nowhere] are invalid or not permitted"},
		{"DELETE", "/keys/kNone", "", 404, "kNone"},
		{"GET", "/nodes/none", "", 404, `no node "none"`},
		{"DELETE", "/nodes/none", "", 404, `no node "none"`},
		{"POST", "/nodes/none/expire", "", 404, `no node "none"`},
		{"POST", "/nodes/app/explode", "", 404, "not found"},
		{"POST", "/nodes/app/approve", `{"routes":["ten"]}`, 400, "body"},
		{"POST", "/nodes/app/expire", `{"after_seconds":-1}`, 400, "negative"},
		{"PUT", "/policy", `{"acls":[{"action":"drop"}]}`, 400, "acls[0]: action"},
		{"PUT", "/settings", `{"batch":1}`, 400, `unknown field "batch"`},
		{"PUT", "/settings", `{"slow_ms":-1}`, 400, "negative"},
		{"GET", "/events?since=x", "", 400, "since"},
	} {
		status, body := s.admin(c.method, c.path, c.body)
		var e struct {
			Message string `json:"message"`
		}
		if err := json.Unmarshal([]byte(body), &e); err != nil || status != c.status || !strings.Contains(e.Message, c.want) {
			t.Errorf("%s %s: %d %s, want %d with %q", c.method, c.path, status, body, c.status, c.want)
		}
	}
}

func TestABadPolicyChangesNothing(t *testing.T) {
	s := startServer(t)
	_, before := s.admin("GET", "/policy", "")
	if status, body := s.admin("PUT", "/policy", `{"acls": "all"}`); status != http.StatusBadRequest {
		t.Fatalf("%d %s", status, body)
	}
	if _, after := s.admin("GET", "/policy", ""); after != before || before != defaultPolicy {
		t.Error("the policy changed")
	}
	if _, err := os.Stat(s.cfg.PolicyFile); err == nil {
		t.Error("a policy file was written")
	}
	good := "{ \"acls\": [] } // shut\n"
	s.must("PUT", "/policy", good, nil)
	if _, after := s.admin("GET", "/policy", ""); after != good || readFile(t, s.cfg.PolicyFile) != good {
		t.Error("a good policy was not taken word for word")
	}
	// A file that somebody else has broken is refused, and the policy goes on.
	if err := os.WriteFile(s.cfg.PolicyFile, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.ReloadPolicy(); err == nil {
		t.Error("a broken file was loaded")
	}
	if _, after := s.admin("GET", "/policy", ""); after != good {
		t.Error("the policy changed")
	}
}

func TestTheAdminSocketIsItsOwnersOnly(t *testing.T) {
	s := startServer(t)
	info, err := os.Stat(s.cfg.AdminSocket)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	if _, err := listenAdmin(s.cfg.AdminSocket); err == nil || !strings.Contains(err.Error(), "another server") {
		t.Errorf("a second server took the socket: %v", err)
	}
	if err := os.WriteFile(s.cfg.AdminSocket+".txt", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listenAdmin(s.cfg.AdminSocket + ".txt"); err == nil {
		t.Error("a plain file was replaced")
	}
}

func TestASocketLeftByAKilledServerIsReplaced(t *testing.T) {
	s := startServer(t)
	path := s.cfg.AdminSocket + ".left"
	ln, err := listenAdmin(path)
	if err != nil {
		t.Fatal(err)
	}
	unix := ln.(interface{ SetUnlinkOnClose(bool) })
	unix.SetUnlinkOnClose(false)
	ln.Close()
	if again, err := listenAdmin(path); err != nil {
		t.Error(err)
	} else {
		again.Close()
	}
}

func TestThePublicSideAnswersEveryPathWithoutPanic(t *testing.T) {
	s := startServer(t)
	for path, want := range map[string]int{
		"/": 404, "/nope": 404, "/machine/register": 404, "/machine/map": 404, "/nodes": 404, "/keys": 404,
		"/health": 200, "/key": 400, "/key?v=140": 200, "/ts2021": 400, "/a/x": 200,
		"/derp": 426, "/derp/probe": 200, "/derp/latency-check": 200, "/generate_204": 204,
		"/api/v2/nope": 404, "/api/v2/device/x": 401, "/api/v2/tailnet/-/devices": 401,
	} {
		resp, err := http.Get(s.url() + path)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, resp.StatusCode, want)
		}
	}
}

func TestMistakesOnTheCommandLineAreListedTogether(t *testing.T) {
	var out strings.Builder
	if code := run([]string{"serve", "--listen", "here", "--derp-ip", "::1", "--state", "s"}, &out); code != 2 {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{"--listen", "--derp-ip", "--policy is required", "--admin is required"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no word of %q in %s", want, out.String())
		}
	}
	if code := run([]string{"sing"}, &out); code != 2 {
		t.Errorf("exit code %d of an unknown command", code)
	}
}
