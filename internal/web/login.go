package web

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"net/http"
	"sync"
	"time"
)

const (
	cookieName  = "ftplockd"
	visitLasts  = 12 * time.Hour
	mostVisits  = 20               // of one account; one more ends its oldest
	loginWithin = 30 * time.Second // bounds a log-in, as login_timeout does by default
)

// visitors are those who have logged in to the page.
type visitors struct {
	mu     sync.Mutex
	visits map[string]visit // by the cookie
}

type visit struct {
	account Account // as it was at the log-in
	until   time.Time
}

// enter makes a visit and returns its cookie.
func (v *visitors) enter(a Account, now time.Time) string {
	cookie := rand.Text()
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.visits == nil {
		v.visits = make(map[string]visit)
	}
	oldest, own := "", 0
	for cookie, visit := range v.visits {
		if !now.Before(visit.until) {
			delete(v.visits, cookie)
		} else if visit.account.Name == a.Name {
			if own++; oldest == "" || visit.until.Before(v.visits[oldest].until) {
				oldest = cookie
			}
		}
	}
	if own >= mostVisits {
		delete(v.visits, oldest)
	}
	v.visits[cookie] = visit{a, now.Add(visitLasts)}
	return cookie
}

// find returns who has the cookie; false: nobody.
func (v *visitors) find(cookie string, now time.Time) (Account, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	visit, ok := v.visits[cookie]
	if !ok || !now.Before(visit.until) {
		return Account{}, false
	}
	return visit.account, true
}

// leave ends a visit.
func (v *visitors) leave(cookie string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.visits, cookie)
}

// visitor returns who has logged in with this browser, and the word that its forms carry. A visit ends when its account is
// removed, or has other rights or another password.
func (s *Server) visitor(r *http.Request) (a Account, word string, ok bool) {
	cookie, err := r.Cookie(cookieName)
	if err != nil {
		return Account{}, "", false
	}
	if a, ok = s.rooms.find(cookie.Value, time.Now()); !ok {
		return Account{}, "", false
	}
	if now, exists := s.o.Source.Account(a.Name); !exists || now != a {
		s.rooms.leave(cookie.Value)
		return Account{}, "", false
	}
	return a, s.formWord(cookie.Value), true
}

// formWord is what the forms of one visit carry: a foreign page cannot know it.
func (s *Server) formWord(cookie string) string {
	h := hmac.New(sha256.New, s.seed[:])
	h.Write([]byte(cookie))
	return hex.EncodeToString(h.Sum(nil))
}

// lookers lets those through who may look at the page.
func (s *Server) lookers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.o.Login {
			if _, _, ok := s.visitor(r); !ok {
				http.Redirect(w, r, "/login", http.StatusSeeOther)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// admins lets administrators through. A form must carry the word of its visit.
func (s *Server) admins(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		a, word, ok := s.visitor(r)
		switch {
		case !ok:
			http.Redirect(w, r, "/login", http.StatusSeeOther)
		case !a.Admin:
			s.message(w, r, http.StatusForbidden, "Only accounts with admin may do that.")
		case r.Method == http.MethodPost && subtle.ConstantTimeCompare([]byte(r.FormValue("word")), []byte(word)) != 1:
			s.message(w, r, http.StatusForbidden, "This form is not from this page, or is too old. Go back and try again.")
		default:
			next(w, r)
		}
	}
}

// scrapers lets programs through that read the metrics: everybody on loopback; elsewhere with the name and password of an
// account (RFC 7617), or from a browser that has logged in.
func (s *Server) scrapers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, _, ok := s.visitor(r); s.o.Login && !ok {
			user, password, given := r.BasicAuth()
			if given {
				_, err := s.logIn(r, user, password)
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

func (s *Server) logIn(r *http.Request, user, password string) (Account, error) {
	ctx, cancel := context.WithTimeout(r.Context(), loginWithin)
	defer cancel()
	return s.o.Source.LogIn(ctx, user, password, remote(r))
}

func (s *Server) loginPage(w http.ResponseWriter, r *http.Request) {
	s.render(w, r, http.StatusOK, "login", "")
}

func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	a, err := s.logIn(r, r.FormValue("user"), r.FormValue("password"))
	switch {
	case errors.Is(err, ErrLogin):
		s.render(w, r, http.StatusForbidden, "login", "This name or password is wrong.")
		return
	case err != nil:
		s.render(w, r, http.StatusServiceUnavailable, "login", "Nobody can log in now: "+err.Error())
		return
	}
	if !a.Looks {
		s.render(w, r, http.StatusForbidden, "login", "This account sees a part of the tree only. The page is for those that see all of it.")
		return
	}
	s.setCookie(w, s.rooms.enter(a, time.Now()), int(visitLasts/time.Second))
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

func (s *Server) logout(w http.ResponseWriter, r *http.Request) {
	if cookie, err := r.Cookie(cookieName); err == nil {
		s.rooms.leave(cookie.Value)
	}
	s.setCookie(w, "", -1)
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

func (s *Server) setCookie(w http.ResponseWriter, value string, age int) {
	http.SetCookie(w, &http.Cookie{
		Name: cookieName, Value: value, Path: "/", MaxAge: age, HttpOnly: true, Secure: s.o.TLS, SameSite: http.SameSiteStrictMode,
	})
}
