package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestAReloadedTailnetIsTheSameOne(t *testing.T) {
	w := newWorld(t, "")
	exit, mine := w.join("exit", "tag:exit"), w.join("mine")
	w.offer(exit)
	w.Connected(exit)
	id, _ := w.key(KeyRequest{Tags: []string{"tag:app"}})
	w.RevokeKey(id)
	w.state.Settings.OnlineOverride = map[string]*bool{"exit": nil, "mine": new(true)}

	store := &Store{Path: filepath.Join(t.TempDir(), "deep", "state.json")}
	if err := store.Save(func() ([]byte, error) { return json.Marshal(w.state) }); err != nil {
		t.Fatal(err)
	}
	state, err := (&Store{Path: store.Path}).Load()
	if err != nil {
		t.Fatal(err)
	}
	again := NewTailnet(state, w.policy, w.domain, w.now)
	for _, n := range again.state.Nodes {
		n.connected, n.closedAt = false, time.Time{}
	}
	exit.connected, exit.closedAt, mine.closedAt = false, time.Time{}, time.Time{}
	for _, part := range []struct {
		name    string
		is, was any
	}{
		{"nodes", again.state.Nodes, w.state.Nodes}, {"keys", again.state.Keys, w.state.Keys},
		{"settings", again.state.Settings, w.state.Settings},
	} {
		if !reflect.DeepEqual(part.is, part.was) {
			is, _ := json.Marshal(part.is)
			was, _ := json.Marshal(part.was)
			t.Errorf("%s: %s\nwas %s", part.name, is, was)
		}
	}
	if !state.NoiseKey.Equal(w.state.NoiseKey) || !state.DERPKey.Equal(w.state.DERPKey) || state.NextAddr != w.state.NextAddr || state.NextID != w.state.NextID {
		t.Error("the server's own identity or its counters changed")
	}
}

func TestTheStateFileIsPrivateAndNeverHalfWritten(t *testing.T) {
	dir := t.TempDir()
	store := &Store{Path: filepath.Join(dir, "state.json")}
	if err := store.Save(func() ([]byte, error) { return []byte(`{"version":1}`), nil }); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(store.Path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	if err := store.Save(func() ([]byte, error) { return nil, errors.New("no snapshot") }); err == nil {
		t.Error("a failed snapshot was saved")
	}
	if got := readFile(t, store.Path); got != `{"version":1}` {
		t.Errorf("the file holds %q", got)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
}

func TestABadStateFileIsNotOverwritten(t *testing.T) {
	for name, text := range map[string]string{"not JSON": "{", "from the future": `{"version":99}`} {
		path := filepath.Join(t.TempDir(), "state.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := (&Store{Path: path}).Load(); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
		if readFile(t, path) != text {
			t.Errorf("%s: the file was changed", name)
		}
	}
}

func TestSettingsAreMergedStrictly(t *testing.T) {
	base := defaultSettings()
	base.OnlineOverride = map[string]*bool{"a": new(true)}
	got, err := base.merged([]byte(`{"batch_ms": 800, "refuse_keys": "no"}`))
	if err != nil || got.BatchMS != 800 || *got.RefuseKeys != "no" || got.OfflineGraceMS != 10_000 || !got.AutoApproveExit || len(got.OnlineOverride) != 1 {
		t.Errorf("%v: %+v", err, got)
	}
	got, err = got.merged([]byte(`{"refuse_keys": null, "online_override": {"b": null, "c": false}}`))
	if err != nil || got.RefuseKeys != nil || got.BatchMS != 800 || len(got.OnlineOverride) != 2 || got.OnlineOverride["b"] != nil || *got.OnlineOverride["c"] {
		t.Errorf("%v: %+v", err, got)
	}
	for _, bad := range []string{``, `[]`, `{`, `{"batch_ms": -1}`, `{"batch_ms": "fast"}`, `{"batchms": 1}`, `{"refuse_keys": ""}`, `{} {}`} {
		if after, err := base.merged([]byte(bad)); err == nil || !reflect.DeepEqual(after, base) {
			t.Errorf("%q: %v, %+v", bad, err, after)
		}
	}
}
