package web

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// guard refuses what comes from other sites, and says what a browser may do with the answers.
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

// isOurs reports whether a Host header names this server. IP addresses do: a foreign page that has one for its name is the
// one at that address. So does no name at all (HTTP/1.0, as health checks of relays have it): browsers always say one.
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

// remote is the address that a request came from.
func remote(r *http.Request) netip.Addr {
	ap, _ := netip.ParseAddrPort(r.RemoteAddr) // net/http wrote it
	return ap.Addr().Unmap().WithZone("")
}
