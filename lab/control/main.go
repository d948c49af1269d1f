// Command labctl is the control server of Sallyport's lab: a tailnet's coordination server, its DERP relay and its
// STUN server in one process, with an admin socket for faults. It is made for labs: one tailnet, no browser logins, no
// tailnet lock.
//
// This file reads the command line, wires the parts together and ends them. README.md describes every command, call
// and setting.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const usage = `usage: labctl serve --listen IP:PORT --derp-ip IP --state FILE --policy FILE --admin FILE.sock
                    [--derp-ip6 IP] [--stun-port 3478] [--domain tail1234.ts.net] [--oauth-client ID:SECRET]
       labctl check-policy FILE
`

func main() {
	log.SetFlags(log.LstdFlags | log.Lmicroseconds)
	os.Exit(run(os.Args[1:], os.Stderr))
}

// run is main without the exit: 0 is a clean end, 1 a failure, 2 a mistake on the command line.
func run(args []string, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return 2
	}
	switch args[0] {
	case "serve":
		cfg, err := parseServe(args[1:], stderr)
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		if err != nil {
			fmt.Fprintf(stderr, "labctl: %v\n%s", err, usage)
			return 2
		}
		if err := serve(cfg); err != nil {
			fmt.Fprintf(stderr, "labctl: %v\n", err)
			return 1
		}
		return 0
	case "check-policy":
		if len(args) != 2 {
			fmt.Fprint(stderr, usage)
			return 2
		}
		text, err := os.ReadFile(args[1])
		if err == nil {
			_, err = ParsePolicy(string(text))
		}
		if err != nil {
			fmt.Fprintf(stderr, "labctl: %v\n", err)
			return 1
		}
		return 0
	case "-h", "--help", "help":
		fmt.Fprint(stderr, usage)
		return 0
	}
	fmt.Fprintf(stderr, "labctl: unknown command %q\n%s", args[0], usage)
	return 2
}

// Config is what the command line says.
type Config struct {
	Listen      netip.AddrPort // control, DERP and /api/v2, all plain http
	DERPIP      netip.Addr     // where nodes reach DERP and STUN over IPv4
	DERPIP6     netip.Addr     // the same over IPv6; the zero value: not at all
	STUNPort    uint16         // 0: any free port
	Domain      string         // MagicDNS suffix, without dots at its ends
	StateFile   string
	PolicyFile  string
	AdminSocket string
	OAuthID     string // what /api/v2/oauth/token accepts
	OAuthSecret string
}

func parseServe(args []string, stderr io.Writer) (Config, error) {
	var cfg Config
	var listen, derpIP, derpIP6, oauth string
	var stunPort uint
	fs := flag.NewFlagSet("labctl serve", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&listen, "listen", "", "`IP:PORT` of control, DERP and API, over plain http (required)")
	fs.StringVar(&derpIP, "derp-ip", "", "IPv4 `address` at which nodes reach DERP and STUN (required)")
	fs.StringVar(&derpIP6, "derp-ip6", "", "IPv6 `address` for the same; empty: none")
	fs.UintVar(&stunPort, "stun-port", 3478, "UDP `port` of STUN on those addresses; 0: any free one")
	fs.StringVar(&cfg.Domain, "domain", "tail1234.ts.net", "MagicDNS `suffix`")
	fs.StringVar(&cfg.StateFile, "state", "", "JSON `file` that keeps nodes and keys (required)")
	fs.StringVar(&cfg.PolicyFile, "policy", "", "HuJSON policy `file`; absent: all may reach all, exit nodes included (required)")
	fs.StringVar(&cfg.AdminSocket, "admin", "", "unix `socket` of the admin API (required)")
	fs.StringVar(&oauth, "oauth-client", "lab:lab", "`ID:SECRET` that /api/v2/oauth/token accepts")
	if err := fs.Parse(args); err != nil {
		return cfg, err
	}
	var wrong []error
	bad := func(format string, a ...any) { wrong = append(wrong, fmt.Errorf(format, a...)) }
	if fs.NArg() > 0 {
		bad("unexpected argument %q", fs.Arg(0))
	}
	for _, required := range []struct{ name, value string }{
		{"listen", listen}, {"derp-ip", derpIP}, {"state", cfg.StateFile}, {"policy", cfg.PolicyFile}, {"admin", cfg.AdminSocket},
	} {
		if required.value == "" {
			bad("--%s is required", required.name)
		}
	}
	var err error
	if cfg.Listen, err = netip.ParseAddrPort(listen); listen != "" && err != nil {
		bad("--listen %q: want IP:PORT", listen)
	}
	if cfg.DERPIP, err = netip.ParseAddr(derpIP); derpIP != "" && (err != nil || !cfg.DERPIP.Is4()) {
		bad("--derp-ip %q: want an IPv4 address", derpIP)
	}
	if derpIP6 != "" {
		if cfg.DERPIP6, err = netip.ParseAddr(derpIP6); err != nil || !cfg.DERPIP6.Is6() {
			bad("--derp-ip6 %q: want an IPv6 address", derpIP6)
		}
	}
	if stunPort > 65535 {
		bad("--stun-port %d: want 0 to 65535", stunPort)
	}
	cfg.STUNPort = uint16(stunPort)
	cfg.Domain = strings.Trim(strings.ToLower(cfg.Domain), ".")
	if !strings.Contains(cfg.Domain, ".") {
		bad("--domain %q: want two labels or more", cfg.Domain)
	}
	var ok bool
	if cfg.OAuthID, cfg.OAuthSecret, ok = strings.Cut(oauth, ":"); !ok || cfg.OAuthID == "" || cfg.OAuthSecret == "" {
		bad("--oauth-client: want ID:SECRET")
	}
	return cfg, errors.Join(wrong...)
}

// serve runs until SIGTERM or SIGINT. SIGHUP reads the policy file again.
func serve(cfg Config) error {
	s, err := Start(cfg)
	if err != nil {
		return err
	}
	log.Printf("labctl: control, DERP and API on http://%s, STUN on port %d, admin on %s", s.Addr(), s.STUNPort(), cfg.AdminSocket)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	for {
		select {
		case err := <-s.Failed():
			return errors.Join(err, s.Close())
		case sig := <-signals:
			if sig != syscall.SIGHUP {
				log.Printf("labctl: %v, stopping", sig)
				return s.Close()
			}
			if err := s.ReloadPolicy(); err != nil {
				log.Printf("labctl: policy not changed: %v", err)
			}
		}
	}
}

// Start binds everything and answers on it. It changes nothing on disk where it fails.
func Start(cfg Config) (*Server, error) {
	store := &Store{Path: cfg.StateFile}
	state, err := store.Load()
	if err != nil {
		return nil, err
	}
	policy, err := loadPolicy(cfg.PolicyFile)
	if err != nil {
		return nil, err
	}
	var open []io.Closer
	started := false
	defer func() {
		if !started {
			for _, c := range open {
				c.Close()
			}
		}
	}()
	listeners, err := listenPublic(cfg)
	if err != nil {
		return nil, err
	}
	for _, ln := range listeners {
		open = append(open, ln)
	}
	ctx, cancel := context.WithCancel(context.Background())
	relay, err := StartRelay(ctx, state.DERPKey, cfg, listeners[0].Addr().(*net.TCPAddr).Port)
	if err != nil {
		cancel()
		return nil, err
	}
	open = append(open, relay)
	admin, err := listenAdmin(cfg.AdminSocket)
	if err != nil {
		cancel()
		return nil, err
	}
	started = true
	s := newServer(ctx, cancel, cfg, NewTailnet(state, policy, cfg.Domain, time.Now), store, relay)
	s.listener = listeners[0]
	s.resume()
	s.public = &http.Server{Handler: s.publicHandler(), ReadHeaderTimeout: 30 * time.Second}
	s.admin = &http.Server{Handler: s.adminHandler(), ReadHeaderTimeout: 30 * time.Second}
	for _, ln := range listeners {
		go s.serveOn(s.public, ln)
	}
	go s.serveOn(s.admin, admin)
	return s, nil
}

// listenPublic binds the address of --listen, and the same port of --derp-ip6: clients try DERP by both families.
func listenPublic(cfg Config) ([]net.Listener, error) {
	ln, err := net.Listen("tcp", cfg.Listen.String())
	if err != nil {
		return nil, fmt.Errorf("listen for control: %w", err)
	}
	if !cfg.DERPIP6.IsValid() || cfg.DERPIP6 == cfg.Listen.Addr() {
		return []net.Listener{ln}, nil
	}
	addr6 := netip.AddrPortFrom(cfg.DERPIP6, uint16(ln.Addr().(*net.TCPAddr).Port))
	ln6, err := net.Listen("tcp", addr6.String())
	if err != nil {
		ln.Close()
		return nil, fmt.Errorf("listen for DERP over IPv6: %w", err)
	}
	return []net.Listener{ln, ln6}, nil
}

// listenAdmin binds the admin socket so that only its owner may open it, from its first moment. A socket that nobody
// answers on is left over from a killed server and replaced.
func listenAdmin(path string) (net.Listener, error) {
	if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
		conn.Close()
		return nil, fmt.Errorf("admin socket %s: another server answers there", path)
	}
	if info, err := os.Lstat(path); err == nil {
		if info.Mode()&os.ModeSocket == 0 {
			return nil, fmt.Errorf("admin socket %s: a file that is not a socket is in the way", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("admin socket: %w", err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("admin socket: %w", err)
	}
	old := syscall.Umask(0o177)
	ln, err := net.Listen("unix", path)
	syscall.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("admin socket: %w", err)
	}
	return ln, nil
}
