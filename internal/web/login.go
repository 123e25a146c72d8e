package web

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/ftplockd/ftplockd/config"
)

const (
	cookieName  = "ftplockd"
	visitLasts  = 12 * time.Hour
	maxVisits   = 20               // of one account; one more ends its oldest
	loginWithin = 30 * time.Second // bounds a login, as login_timeout does by default
)

// visits has the browsers that are logged in to the page.
type visits struct {
	mu       sync.Mutex
	byCookie map[string]visit
}

type visit struct {
	account Account // as it was at the login
	until   time.Time
}

// enter makes a visit and returns its cookie.
func (v *visits) enter(a Account, now time.Time) string {
	cookie := rand.Text()
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.byCookie == nil {
		v.byCookie = make(map[string]visit)
	}
	oldest, own := "", 0
	for cookie, visit := range v.byCookie {
		if !now.Before(visit.until) {
			delete(v.byCookie, cookie)
		} else if visit.account.Name == a.Name {
			if own++; oldest == "" || visit.until.Before(v.byCookie[oldest].until) {
				oldest = cookie
			}
		}
	}
	if own >= maxVisits {
		delete(v.byCookie, oldest)
	}
	v.byCookie[cookie] = visit{a, now.Add(visitLasts)}
	return cookie
}

// find returns the account of a cookie; false: there is none.
func (v *visits) find(cookie string, now time.Time) (Account, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	visit, ok := v.byCookie[cookie]
	if !ok || !now.Before(visit.until) {
		return Account{}, false
	}
	return visit.account, true
}

// leave ends a visit.
func (v *visits) leave(cookie string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.byCookie, cookie)
}

// visitor returns the account that has logged in with this browser. A visit ends when its account is removed, or has other rights or another
// password.
func (s *Server) visitor(r *http.Request) (a Account, ok bool) {
	cookie, err := r.Cookie(cookieName)
	if err != nil {
		return Account{}, false
	}
	if a, ok = s.visits.find(cookie.Value, time.Now()); !ok {
		return Account{}, false
	}
	if now, exists := s.o.Source.Account(a.Name); !exists || now != a {
		s.visits.leave(cookie.Value)
		return Account{}, false
	}
	return a, true
}

// requireLogin requires a login if Login is set.
func (s *Server) requireLogin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.o.Login {
			if _, ok := s.visitor(r); !ok {
				http.Redirect(w, r, "/login", http.StatusSeeOther)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// requireAdmin requires an account with admin. guard has refused forms of other sites.
func (s *Server) requireAdmin(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch a, ok := s.visitor(r); {
		case !ok:
			http.Redirect(w, r, "/login", http.StatusSeeOther)
		case !a.Admin:
			s.message(w, r, http.StatusForbidden, "Only accounts with admin may do that.")
		default:
			next(w, r)
		}
	}
}

// requireAccount requires the name and password of an account (RFC 7617) or a browser that has logged in, if Login is set.
func (s *Server) requireAccount(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := s.visitor(r); s.o.Login && !ok {
			user, password, given := r.BasicAuth()
			if given {
				_, err := s.authenticate(r, user, password)
				given = err == nil
			}
			if !given {
				w.Header().Set("WWW-Authenticate", `Basic realm="ftplockd", charset="UTF-8"`)
				plain(w, http.StatusUnauthorized, "log in with an account of the server")
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Server) authenticate(r *http.Request, user, password string) (Account, error) {
	ctx, cancel := context.WithTimeout(r.Context(), loginWithin)
	defer cancel()
	return s.o.Source.LogIn(ctx, user, password, remote(r))
}

func (s *Server) loginPage(w http.ResponseWriter, r *http.Request) {
	s.render(w, r, http.StatusOK, "login", "")
}

func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	a, err := s.authenticate(r, r.FormValue("user"), r.FormValue("password"))
	switch {
	case errors.Is(err, config.ErrLogin):
		s.render(w, r, http.StatusForbidden, "login", "This name or password is wrong.")
		return
	case err != nil:
		s.render(w, r, http.StatusServiceUnavailable, "login", "No account can log in now: "+err.Error())
		return
	}
	if !a.CanView {
		s.render(w, r, http.StatusForbidden, "login", "This account sees a part of the tree only. The page is for those that see all of it.")
		return
	}
	s.setCookie(w, s.visits.enter(a, time.Now()), int(visitLasts/time.Second))
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

func (s *Server) logout(w http.ResponseWriter, r *http.Request) {
	if cookie, err := r.Cookie(cookieName); err == nil {
		s.visits.leave(cookie.Value)
	}
	s.setCookie(w, "", -1)
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

func (s *Server) setCookie(w http.ResponseWriter, value string, age int) {
	http.SetCookie(w, &http.Cookie{
		Name: cookieName, Value: value, Path: "/", MaxAge: age, HttpOnly: true, Secure: s.o.TLS, SameSite: http.SameSiteStrictMode,
	})
}
