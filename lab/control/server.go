// Server: the tailnet behind a lock, with everything that listens, tells and writes around it.

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"tailscale.com/tailcfg"
)

// Server is a running control server.
type Server struct {
	cfg    Config
	ctx    context.Context // ends with the server
	cancel context.CancelFunc
	store  *Store
	saver  *saver
	relay  *Relay
	failed chan error

	listener      net.Listener // the address of --listen
	public, admin *http.Server

	mu       sync.Mutex
	tailnet  *Tailnet
	sessions map[*Node]*session // open map streams
	hijacked map[io.Closer]bool // connections that http.Server has let go of
	timer    *time.Timer        // for Tailnet.Tick
	closed   bool
}

func newServer(ctx context.Context, cancel context.CancelFunc, cfg Config, t *Tailnet, store *Store, relay *Relay) *Server {
	s := &Server{
		cfg: cfg, ctx: ctx, cancel: cancel, store: store, relay: relay, tailnet: t,
		sessions: map[*Node]*session{},
		hijacked: map[io.Closer]bool{},
		failed:   make(chan error, 1),
	}
	s.saver = &saver{delay: 50 * time.Millisecond, save: func() {
		if err := s.save(); err != nil {
			log.Printf("labctl: %v", err)
		}
	}}
	return s
}

// resume starts the clock for what the state file tells of the last run.
func (s *Server) resume() {
	s.change(func(t *Tailnet) { t.event(Event{Kind: "start", Detail: fmt.Sprintf("%d nodes", len(t.state.Nodes))}) })
}

// Addr is where control, DERP and the API answer.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// STUNPort is the UDP port of STUN.
func (s *Server) STUNPort() int { return s.relay.stunPort }

// Failed tells of a listener that broke.
func (s *Server) Failed() <-chan error { return s.failed }

func (s *Server) serveOn(srv *http.Server, ln net.Listener) {
	if err := srv.Serve(ln); err != nil && !errors.Is(err, http.ErrServerClosed) {
		select {
		case s.failed <- fmt.Errorf("serve on %s: %w", ln.Addr(), err):
		default:
		}
	}
}

// view calls f with the tailnet locked; f only reads.
func (s *Server) view(f func(*Tailnet)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.tailnet)
}

// change calls f with the tailnet locked, then tells every node what that changed for it, and saves soon.
func (s *Server) change(f func(*Tailnet)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.tailnet)
	s.changedLocked()
}

func (s *Server) changedLocked() {
	next := s.tailnet.Tick()
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	if s.closed {
		return
	}
	if !next.IsZero() {
		s.timer = time.AfterFunc(time.Until(next), func() { s.change(func(*Tailnet) {}) })
	}
	for _, sess := range s.sessions {
		sess.poke()
	}
	s.saver.soon()
}

// save writes the state file now.
func (s *Server) save() error {
	return s.store.Save(func() ([]byte, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return json.MarshalIndent(s.tailnet.state, "", "\t")
	})
}

// saveOrWarn is for answers that must not be lost by a crash, such as a used-up key.
func (s *Server) saveOrWarn() {
	if err := s.save(); err != nil {
		log.Printf("labctl: %v", err)
	}
}

// SetPolicy replaces the policy and its file. Where it fails, nothing has changed.
func (s *Server) SetPolicy(text string) (*Policy, error) {
	p, err := ParsePolicy(text)
	if err != nil {
		return nil, err
	}
	if err := writeFileAtomically(s.cfg.PolicyFile, []byte(text)); err != nil {
		return nil, fmt.Errorf("policy file: %w", err)
	}
	s.usePolicy(p)
	return p, nil
}

// ReloadPolicy reads the policy file again. Where it fails, nothing has changed.
func (s *Server) ReloadPolicy() error {
	p, err := loadPolicy(s.cfg.PolicyFile)
	if err == nil {
		s.usePolicy(p)
	}
	return err
}

func (s *Server) usePolicy(p *Policy) {
	s.change(func(t *Tailnet) {
		t.policy = p
		t.event(Event{Kind: "policy", Detail: fmt.Sprintf("%d rules", len(p.rules))})
	})
}

// publicHandler answers nodes and API clients. Every other path is 404.
func (s *Server) publicHandler() http.Handler {
	mux := http.NewServeMux()
	s.relay.handle(mux)
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("GET /key", s.slowed(s.serveKey))
	mux.HandleFunc("/ts2021", s.slowed(s.serveNoise))
	mux.HandleFunc("GET /a/{id}", s.slowed(serveLoginPage))
	mux.Handle("/api/v2/", s.slowed(s.apiV2Handler().ServeHTTP))
	return mux
}

// slowed delays a handler by the setting slow_ms.
func (s *Server) slowed(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s.slow(r.Context()) {
			h(w, r)
		}
	}
}

// slow waits as long as the setting slow_ms says. It reports whether the asker is still there.
func (s *Server) slow(ctx context.Context) bool {
	var d time.Duration
	s.view(func(t *Tailnet) { d = t.state.Settings.slow() })
	return sleep(ctx, d)
}

// sleep reports whether ctx has outlived d.
func sleep(ctx context.Context, d time.Duration) bool {
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}

func (s *Server) serveKey(w http.ResponseWriter, r *http.Request) {
	if r.FormValue("v") == "" {
		http.Error(w, "this server needs clients that ask /key?v=N", http.StatusBadRequest)
		return
	}
	var keys tailcfg.OverTLSPublicKeyResponse
	s.view(func(t *Tailnet) {
		keys.PublicKey, keys.LegacyPublicKey = t.state.NoiseKey.Public(), t.state.LegacyKey.Public()
	})
	writeJSON(w, http.StatusOK, &keys)
}

func serveLoginPage(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintln(w, "This lab has no logins by browser. Log in with a key: tailscale up --auth-key=...")
}

// Close ends every connection, and writes the state a last time.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Unlock()
	s.cancel()
	errs := []error{s.public.Close(), s.admin.Close()}
	s.relay.Close()
	s.mu.Lock()
	for c := range s.hijacked {
		c.Close()
	}
	s.mu.Unlock()
	s.saver.stop()
	errs = append(errs, s.save())
	if err := os.Remove(s.cfg.AdminSocket); err != nil && !errors.Is(err, os.ErrNotExist) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the asker has gone: nobody is left to tell
}

// writeError is how both APIs say what is wrong, as the hosted one does.
func writeError(w http.ResponseWriter, status int, format string, a ...any) {
	writeJSON(w, status, map[string]string{"message": fmt.Sprintf(format, a...)})
}
