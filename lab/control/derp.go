// DERP and STUN: the relay and the mirror that nodes find each other by.

package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/netip"

	"tailscale.com/derp/derpserver"
	"tailscale.com/net/stun"
	"tailscale.com/tailcfg"
	"tailscale.com/types/key"
)

// derpRegion is the one region of a lab; Tailscale keeps 900 to 999 for private ones.
const derpRegion = 900

// Relay is a DERP server without a listener of its own, and STUN on UDP.
type Relay struct {
	derp     *derpserver.Server
	packets  []*net.UDPConn
	stunPort int
	derpMap  *tailcfg.DERPMap
}

// StartRelay answers STUN at once; DERP is served by handle.
func StartRelay(ctx context.Context, private key.NodePrivate, cfg Config, httpPort int) (*Relay, error) {
	r := &Relay{stunPort: int(cfg.STUNPort)}
	for _, ip := range []netip.Addr{cfg.DERPIP, cfg.DERPIP6} {
		if !ip.IsValid() {
			continue
		}
		conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(ip, uint16(r.stunPort))))
		if err != nil {
			r.closePackets()
			return nil, fmt.Errorf("listen for STUN: %w", err)
		}
		r.packets = append(r.packets, conn)
		r.stunPort = conn.LocalAddr().(*net.UDPAddr).Port
	}
	for _, conn := range r.packets {
		go serveSTUN(ctx, conn)
	}
	// Whoever knows the lab's address may relay: verifying clients needs a tailscaled beside this server.
	r.derp = derpserver.New(private, func(format string, args ...any) {})
	r.derpMap = derpMap(cfg, httpPort, r.stunPort)
	return r, nil
}

func derpMap(cfg Config, httpPort, stunPort int) *tailcfg.DERPMap {
	ip6 := "none" // tailcfg's word for: do not look one up
	if cfg.DERPIP6.IsValid() {
		ip6 = cfg.DERPIP6.String()
	}
	return &tailcfg.DERPMap{
		OmitDefaultRegions: true,
		Regions: map[int]*tailcfg.DERPRegion{derpRegion: {
			RegionID:   derpRegion,
			RegionCode: "lab",
			RegionName: "Lab",
			Nodes: []*tailcfg.DERPNode{{
				Name:             fmt.Sprintf("%da", derpRegion),
				RegionID:         derpRegion,
				HostName:         cfg.DERPIP.String(),
				IPv4:             cfg.DERPIP.String(),
				IPv6:             ip6,
				STUNPort:         stunPort,
				DERPPort:         httpPort,
				InsecureForTests: true,
			}},
		}},
	}
}

func serveSTUN(ctx context.Context, conn *net.UDPConn) {
	buf := make([]byte, 64<<10)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(buf)
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, net.ErrClosed) {
				log.Printf("labctl: STUN stopped: %v", err)
			}
			return
		}
		if !stun.Is(buf[:n]) {
			continue
		}
		tx, err := stun.ParseBindingRequest(buf[:n])
		if err != nil {
			continue
		}
		from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		// An answer that cannot be sent is an answer lost on the way: STUN asks again.
		_, _ = conn.WriteToUDPAddrPort(stun.Response(tx, from), from)
	}
}

func (r *Relay) handle(mux *http.ServeMux) {
	mux.Handle("/derp", derpserver.Handler(r.derp))
	mux.HandleFunc("/derp/probe", derpserver.ProbeHandler)
	mux.HandleFunc("/derp/latency-check", derpserver.ProbeHandler)
	mux.HandleFunc("/generate_204", derpserver.ServeNoContent)
}

func (r *Relay) closePackets() {
	for _, conn := range r.packets {
		conn.Close()
	}
}

// Close ends every relayed connection.
func (r *Relay) Close() error {
	r.closePackets()
	return r.derp.Close()
}
