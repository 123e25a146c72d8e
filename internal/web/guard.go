package web

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// guard refuses requests from other sites, and limits what a browser may do with the answers.
func (s *Server) guard(next http.Handler) http.Handler {
	sameSite := http.NewCrossOriginProtection().Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "+
			"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		if !s.isOurs(r.Host) {
			plain(w, http.StatusMisdirectedRequest, "this server does not go by the name "+printable(r.Host))
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
		sameSite.ServeHTTP(w, r)
	})
}

// isOurs reports whether a Host header names this server. Each IP address does: a page with an address as its name comes from that address. So does an
// empty name (HTTP/1.0, health checks of relays): browsers always send one.
func (s *Server) isOurs(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.ToLower(strings.Trim(name, "[]")), ".")
	if _, err := netip.ParseAddr(name); err == nil || name == "localhost" || host == "" {
		return true
	}
	return name != "" && s.o.Host != nil && s.o.Host(name)
}

// remote returns the address of the client.
func remote(r *http.Request) netip.Addr {
	ap, _ := netip.ParseAddrPort(r.RemoteAddr) // net/http wrote it
	return ap.Addr().Unmap().WithZone("")
}
