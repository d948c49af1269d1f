// The state file: what must be the same after a restart, written whole and atomically.

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"tailscale.com/types/key"
)

const stateVersion = 1

// State is the content of the state file. Auth keys and API tokens are kept as hashes only; the three private keys are
// why the file is 0600.
type State struct {
	Version   int                `json:"version"`
	NoiseKey  key.MachinePrivate `json:"noise_key"`  // who this server is to its nodes
	LegacyKey key.MachinePrivate `json:"legacy_key"` // told in /key, used by no current client
	DERPKey   key.NodePrivate    `json:"derp_key"`
	NextID    int64              `json:"next_id"`   // of the next node
	NextAddr  uint32             `json:"next_addr"` // host part of the next node's addresses
	Nodes     []*Node            `json:"nodes"`
	Keys      []*AuthKey         `json:"keys"`
	Tokens    []*APIToken        `json:"tokens,omitempty"`
	Settings  Settings           `json:"settings"`
}

func newState() *State {
	return &State{
		Version:   stateVersion,
		NoiseKey:  key.NewMachine(),
		LegacyKey: key.NewMachine(),
		DERPKey:   key.NewNode(),
		NextID:    1001,
		NextAddr:  1,
		Settings:  defaultSettings(),
	}
}

// Store reads and writes the state file.
type Store struct {
	Path string

	mu   sync.Mutex
	last []byte
}

// Load returns the state of the last run, or a new one where there is none.
func (s *Store) Load() (*State, error) {
	text, err := os.ReadFile(s.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return newState(), nil
	}
	if err != nil {
		return nil, fmt.Errorf("state file: %w", err)
	}
	state := newState()
	if err := json.Unmarshal(text, state); err != nil {
		return nil, fmt.Errorf("state file %s: %w", s.Path, err)
	}
	if state.Version != stateVersion {
		return nil, fmt.Errorf("state file %s: version %d, this server knows %d", s.Path, state.Version, stateVersion)
	}
	return state, nil
}

// Save replaces the state file by what snapshot returns, unless it holds just that. A later call never writes an older
// snapshot over a newer one.
func (s *Store) Save(snapshot func() ([]byte, error)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	text, err := snapshot()
	if err == nil && !bytes.Equal(text, s.last) {
		err = writeFileAtomically(s.Path, text)
	}
	if err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	s.last = text
	return nil
}

// writeFileAtomically leaves either the old file or the new one, whatever happens in between.
func writeFileAtomically(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(text)
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

// saver writes the state some time after it changed, so that a burst of node news costs one write.
type saver struct {
	delay time.Duration
	save  func()

	mu    sync.Mutex
	timer *time.Timer
}

func (s *saver) soon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer == nil {
		s.timer = time.AfterFunc(s.delay, func() {
			s.mu.Lock()
			s.timer = nil
			s.mu.Unlock()
			s.save()
		})
	}
}

func (s *saver) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
	}
}
