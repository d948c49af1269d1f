// Map streams: a node's long poll, on which it hears first everything and then what changes.

package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"log"
	"math/rand/v2"
	"net/http"
	"time"

	"tailscale.com/tailcfg"
	"tailscale.com/types/key"
	"tailscale.com/util/zstdframe"
)

// Clients give up a stream after 120 s of silence; production speaks about once a minute, headscale every 50 to 59 s.
const (
	keepAliveEvery  = 50 * time.Second
	keepAliveJitter = 9 * time.Second
)

// readOnlyStreams is the capability version from which a streaming request reports nothing: its fields are stale.
const readOnlyStreams = 68

// session is an open map stream. Only its own goroutine touches sent.
type session struct {
	node     *Node
	wake     chan struct{} // something has changed
	replaced chan struct{} // closed when the node has opened another stream
	sent     Netmap
}

func (s *session) poke() {
	select {
	case s.wake <- struct{}{}:
	default: // a wake-up is waiting already
	}
}

func (s *Server) serveMap(w http.ResponseWriter, r *http.Request, machine key.MachinePublic) {
	req := new(tailcfg.MapRequest)
	if !decodeRequest(w, r, req) || !s.slow(r.Context()) {
		return
	}
	stream := &mapWriter{w: w, compress: req.Compress == "zstd"}
	sess := &session{wake: make(chan struct{}, 1), replaced: make(chan struct{})}
	var first *tailcfg.MapResponse
	err := s.openMap(r.Context(), req, machine, sess, &first)
	if err != nil {
		status := http.StatusBadRequest
		if errors.Is(err, errNoNode) {
			status = http.StatusNotFound
		}
		http.Error(w, err.Error(), status)
		return
	}
	if first == nil { // a mere report
		w.WriteHeader(http.StatusOK)
		return
	}
	if !req.Stream || req.ReadOnly {
		_ = stream.send(first)
		return
	}
	defer s.endMap(sess)
	ctx, cancel := s.untilEither(r.Context())
	defer cancel()
	if stream.send(first) == nil {
		s.follow(ctx, sess, stream)
	}
}

var errNoNode = errors.New("node not found")

// openMap takes over what the request reports, opens the session if it asks for a stream, and makes the first message
// unless the request is a mere report.
func (s *Server) openMap(ctx context.Context, req *tailcfg.MapRequest, machine key.MachinePublic, sess *session, first **tailcfg.MapResponse) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tailnet
	n := t.byKey(req.NodeKey)
	if n == nil || n.Machine != machine {
		return errNoNode
	}
	if reports := !req.ReadOnly && (!req.Stream || req.Version < readOnlyStreams); reports {
		if ctx.Err() != nil {
			return ctx.Err() // given up by the client: newer news may have come before
		}
		if err := t.Update(n, req); err != nil {
			return err
		}
		defer s.changedLocked()
	}
	if !req.Stream && req.OmitPeers {
		return nil
	}
	sess.node = n
	if req.Stream && !req.ReadOnly {
		if old := s.sessions[n]; old != nil {
			close(old.replaced)
		}
		s.sessions[n] = sess
		t.Connected(n)
		t.nodeEvent("map-open", n, "")
		defer s.changedLocked()
	}
	sess.sent = t.MapFor(n)
	*first = s.firstMessage(sess.sent, req.OmitPeers)
	return nil
}

// endMap forgets the session, and says that the node is away unless it has opened another one.
func (s *Server) endMap(sess *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions[sess.node] != sess {
		return
	}
	delete(s.sessions, sess.node)
	if s.closed {
		return // we left, not the node
	}
	s.tailnet.Disconnected(sess.node)
	s.tailnet.nodeEvent("map-close", sess.node, "")
	s.changedLocked()
}

func (s *Server) firstMessage(m Netmap, omitPeers bool) *tailcfg.MapResponse {
	t := s.tailnet
	msg := &tailcfg.MapResponse{
		Node:            m.Self,
		DERPMap:         s.relay.derpMap,
		DNSConfig:       &tailcfg.DNSConfig{Proxied: true, Domains: []string{t.domain}},
		Domain:          tailnetName,
		CollectServices: "true",
		PacketFilters:   map[string][]tailcfg.FilterRule{"base": m.Filter},
		UserProfiles:    profiles(),
		ControlTime:     new(t.now().UTC()),
		Debug:           &tailcfg.Debug{DisableLogTail: true},
	}
	if !omitPeers {
		msg.Peers = m.Peers
	}
	return msg
}

// follow sends what changes until the stream ends. A deleted node's stream stays open and says nothing: production
// leaves such a node in the belief that all is well.
func (s *Server) follow(ctx context.Context, sess *session, stream *mapWriter) {
	keepAlive := time.NewTimer(0)
	defer keepAlive.Stop()
	for {
		keepAlive.Reset(keepAliveEvery + rand.N(keepAliveJitter))
		select {
		case <-ctx.Done():
			return
		case <-sess.replaced:
			return
		case <-keepAlive.C:
			if stream.send(&tailcfg.MapResponse{KeepAlive: true}) != nil {
				return
			}
		case <-sess.wake:
			if !s.sendNews(ctx, sess, stream) {
				return
			}
		}
	}
}

// sendNews waits as the settings say and sends what has changed by then. It reports whether the stream goes on.
func (s *Server) sendNews(ctx context.Context, sess *session, stream *mapWriter) bool {
	next, messages, hold := s.news(sess)
	if len(messages) == 0 {
		return true
	}
	if hold > 0 {
		if !sleep(ctx, hold) {
			return false
		}
		next, messages, _ = s.news(sess)
	}
	for _, msg := range messages {
		if stream.send(msg) != nil {
			return false
		}
	}
	sess.sent = next
	return true
}

func (s *Server) news(sess *session) (next Netmap, messages []*tailcfg.MapResponse, hold time.Duration) {
	next = sess.sent
	s.view(func(t *Tailnet) {
		if t.has(sess.node) {
			next = t.MapFor(sess.node)
			messages = delta(sess.sent, next, t.now().UTC())
		}
		hold = max(t.state.Settings.batch(), t.state.Settings.slow())
	})
	return next, messages, hold
}

// mapWriter frames messages: four bytes of length, then JSON, packed if the client wants that.
type mapWriter struct {
	w        http.ResponseWriter
	compress bool
}

func (m *mapWriter) send(msg *tailcfg.MapResponse) error {
	body, err := json.Marshal(msg)
	if err != nil {
		log.Printf("labctl: encode a map: %v", err)
		return err
	}
	if m.compress {
		body = zstdframe.AppendEncode(nil, body, zstdframe.FastestCompression)
	}
	frame := binary.LittleEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body)))
	if _, err := m.w.Write(append(frame, body...)); err != nil {
		return err
	}
	return http.NewResponseController(m.w).Flush()
}
