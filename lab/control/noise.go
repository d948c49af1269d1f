// The encrypted channel to nodes: Noise over an upgraded HTTP connection, HTTP/2 inside it, and the two requests that
// nodes make there.

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"

	"golang.org/x/net/http2"
	"tailscale.com/control/controlhttp/controlhttpserver"
	"tailscale.com/tailcfg"
	"tailscale.com/types/key"
)

const maxRequest = 1 << 20 // bytes of one request of a node

func (s *Server) serveNoise(w http.ResponseWriter, r *http.Request) {
	var private key.MachinePrivate
	s.view(func(t *Tailnet) { private = t.state.NoiseKey })
	// AcceptHTTP has answered whatever comes of it. Scanners fail here; that is no news.
	conn, err := controlhttpserver.AcceptHTTP(r.Context(), w, r, private, nil)
	if err != nil {
		return
	}
	defer conn.Close()
	s.mu.Lock()
	s.hijacked[conn] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.hijacked, conn)
		s.mu.Unlock()
	}()
	machine := conn.Peer()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /machine/register", func(w http.ResponseWriter, r *http.Request) { s.serveRegister(w, r, machine) })
	mux.HandleFunc("POST /machine/map", func(w http.ResponseWriter, r *http.Request) { s.serveMap(w, r, machine) })
	mux.HandleFunc("POST /machine/update-health", func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, io.LimitReader(r.Body, maxRequest))
		w.WriteHeader(http.StatusNoContent)
	})
	var h2 http2.Server
	h2.ServeConn(conn, &http2.ServeConnOpts{
		Context:    s.ctx,
		BaseConfig: &http.Server{Handler: mux},
	})
}

// decodeRequest reads what a node sends. Where it fails, the answer is given.
func decodeRequest(w http.ResponseWriter, r *http.Request, v any) bool {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err == nil {
		err = json.Unmarshal(body, v)
	}
	if err != nil {
		http.Error(w, fmt.Sprintf("bad request: %v", err), http.StatusBadRequest)
		return false
	}
	return true
}

func (s *Server) serveRegister(w http.ResponseWriter, r *http.Request, machine key.MachinePublic) {
	var req tailcfg.RegisterRequest
	if !decodeRequest(w, r, &req) || !s.slow(r.Context()) {
		return
	}
	if req.Version == 0 || req.NodeKey.IsZero() {
		http.Error(w, "bad request: no version or no node key", http.StatusBadRequest)
		return
	}
	var verdict Verdict
	var resp *tailcfg.RegisterResponse
	s.change(func(t *Tailnet) {
		verdict = t.Register(machine, &req)
		resp = verdict.response()
	})
	s.saveOrWarn()
	if verdict.Login {
		if req.Followup != "" {
			<-r.Context().Done() // a person would now log in; none will
			return
		}
		resp.AuthURL = fmt.Sprintf("http://%s/a/%s", s.Addr(), randomID(12))
	}
	body, err := json.Marshal(resp)
	if err != nil {
		log.Printf("labctl: encode the answer to a registration: %v", err)
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}

// untilEither returns a context that also ends with the server.
func (s *Server) untilEither(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}
