// The event log: what happened to nodes and keys, for tests and for people who wonder. No secret enters it.

package main

import (
	"encoding/json"
	"io"
	"sync"
	"time"
)

const keptEvents = 10_000

// Event is one line of GET /events. Seq counts up from 1 within one run of the server.
type Event struct {
	Seq    int64     `json:"seq"`
	Time   time.Time `json:"time"`
	Kind   string    `json:"event"`
	Node   string    `json:"node,omitempty"` // its name in MagicDNS
	ID     string    `json:"id,omitempty"`   // its stable id
	KeyID  string    `json:"key_id,omitempty"`
	Detail string    `json:"detail,omitempty"` // an error's text, tags, routes
}

// EventLog keeps the last keptEvents events.
type EventLog struct {
	mu   sync.Mutex
	seq  int64
	kept []Event
}

func (l *EventLog) add(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq++
	e.Seq = l.seq
	l.kept = append(l.kept, e)
	if len(l.kept) > keptEvents {
		l.kept = append([]Event(nil), l.kept[len(l.kept)-keptEvents:]...)
	}
}

// writeSince writes the events after number since as JSON lines.
func (l *EventLog) writeSince(w io.Writer, since int64) error {
	l.mu.Lock()
	events := append([]Event(nil), l.kept...)
	l.mu.Unlock()
	enc := json.NewEncoder(w)
	for _, e := range events {
		if e.Seq > since {
			if err := enc.Encode(e); err != nil {
				return err
			}
		}
	}
	return nil
}
