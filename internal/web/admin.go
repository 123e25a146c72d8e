package web

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/ftplockd/ftplockd/internal/status"
)

// Forms name a lock by its token: a form could change bytes of a name, and a later hold of the name has another token.

// findHold returns the hold with the token of a request; nil: it has ended.
func (s *Server) findHold(r *http.Request) *status.Lock {
	token, err := strconv.ParseUint(r.FormValue("token"), 10, 64)
	if err != nil {
		return nil
	}
	for _, l := range s.o.Source.Locks() {
		if l.Token == token {
			return &l
		}
	}
	return nil
}

// breakPage shows the form with which an administrator breaks a lock.
func (s *Server) breakPage(w http.ResponseWriter, r *http.Request) {
	l := s.findHold(r)
	if l == nil {
		s.message(w, r, http.StatusNotFound, "This lock is not held any more.")
		return
	}
	sc := s.emptyScreen(r)
	sc.Subject = l
	s.write(w, http.StatusOK, "break", sc)
}

func (s *Server) breakLock(w http.ResponseWriter, r *http.Request) {
	a, _ := s.visitor(r)
	l, reason := s.findHold(r), strings.TrimSpace(r.PostFormValue("reason"))
	switch {
	case l == nil:
		s.message(w, r, http.StatusConflict, "This lock is not held any more; nothing was changed.")
		return
	case reason == "":
		s.message(w, r, http.StatusBadRequest, "Give a reason: the holder and the history get it.")
		return
	}
	if err := s.o.Source.Break(r.Context(), l.Name, l.Token, a.Name, reason); err != nil {
		s.message(w, r, http.StatusConflict, "The lock was not broken: "+err.Error())
		return
	}
	s.board.invalidate()
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// kickPage shows the form with which an administrator ends a session.
func (s *Server) kickPage(w http.ResponseWriter, r *http.Request) {
	for _, session := range s.o.Source.Sessions() {
		if session.ID == r.FormValue("id") {
			sc := s.emptyScreen(r)
			sc.Subject = session
			s.write(w, http.StatusOK, "kick", sc)
			return
		}
	}
	s.message(w, r, http.StatusNotFound, "This session has ended.")
}

func (s *Server) kick(w http.ResponseWriter, r *http.Request) {
	a, _ := s.visitor(r)
	reason := strings.TrimSpace(r.PostFormValue("reason"))
	if reason == "" {
		s.message(w, r, http.StatusBadRequest, "Give a reason: the client gets it.")
		return
	}
	if err := s.o.Source.Kick(r.PostFormValue("id"), a.Name, reason); err != nil {
		s.message(w, r, http.StatusConflict, "The session was not ended: "+err.Error())
		return
	}
	s.board.invalidate()
	http.Redirect(w, r, "/", http.StatusSeeOther)
}
