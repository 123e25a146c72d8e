package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// holdView is one hold as `ftplockd locks --json` prints it. The names of the keys are part of what users rely on.
type holdView struct {
	Name        string     `json:"name"`                   // bytes that are no UTF-8 show as U+FFFD
	NameEncoded string     `json:"name_encoded,omitempty"` // percent-encoded, if the name is no UTF-8
	Holder      string     `json:"holder"`
	Address     string     `json:"address,omitempty"`
	Session     string     `json:"session,omitempty"`
	Token       uint64     `json:"token"`
	Acquired    time.Time  `json:"acquired"`
	Age         float64    `json:"age_seconds"`
	Expires     *time.Time `json:"expires"` // if there is no further sign of life; null: never
	ExpiresIn   *float64   `json:"expires_in_seconds"`
	Rule        string     `json:"rule"`
	Shared      bool       `json:"shared,omitempty"`
	Waiting     int        `json:"waiting"` // how many are in the queue
}

// sessionView is one session as `ftplockd sessions --json` prints it.
type sessionView struct {
	ID      string    `json:"id"`
	Account string    `json:"account"`
	Address string    `json:"address"`
	Opened  time.Time `json:"opened"`
	Holds   int       `json:"holds"`
}

func holdViews(statuses []lock.Status, now lock.Instant) []holdView {
	views := []holdView{}
	for _, status := range statuses {
		for _, h := range status.Holds {
			views = append(views, viewOf(status, h, now))
		}
	}
	return views
}

func viewOf(status lock.Status, h lock.Hold, now lock.Instant) holdView {
	v := holdView{
		Name: string(status.Name), Holder: h.Owner.Account, Address: h.Owner.Address, Token: uint64(h.Token),
		Acquired: h.Acquired.Wall.UTC(), Age: (now.Boot - h.Acquired.Boot).Seconds(), Rule: h.Rule.Match,
		Shared: h.Shared, Waiting: status.Waiting,
	}
	if !utf8.ValidString(v.Name) {
		v.NameEncoded = (&url.URL{Path: v.Name}).EscapedPath()
	}
	if h.Owner.Session != 0 {
		v.Session = h.Owner.Session.String()
	}
	if !status.Never {
		expires, in := now.Wall.UTC().Add(status.Remaining), status.Remaining.Seconds()
		v.Expires, v.ExpiresIn = &expires, &in
	}
	return v
}

// serveLocks lists the locks, unless another server may have granted them again.
func (v *service) serveLocks(w http.ResponseWriter, _ *http.Request) {
	all := v.table.All()
	if err := v.table.Valid(); err != nil {
		http.Error(w, err.Error(), statusSuspended)
		return
	}
	answer(w, holdViews(all, v.server.clock.Now()))
}

func (v *service) serveSessions(w http.ResponseWriter, _ *http.Request) {
	views := []sessionView{}
	for _, status := range v.table.Sessions() {
		views = append(views, sessionView{
			ID: status.Owner.Session.String(), Account: status.Owner.Account, Address: status.Owner.Address,
			Opened: status.Opened.Wall.UTC(), Holds: status.Holds,
		})
	}
	answer(w, views)
}

// serveBreak takes a lock away from the holder with the token.
func (v *service) serveBreak(w http.ResponseWriter, r *http.Request) {
	by := lock.Owner{Account: "administrator"}
	token, err := strconv.ParseUint(r.FormValue("token"), 10, 64)
	if err != nil {
		http.Error(w, "the token is missing", http.StatusBadRequest)
		return
	}
	err = v.table.Break(r.Context(), lock.Name(r.FormValue("name")), lock.Token(token), by, r.FormValue("reason"))
	switch {
	case errors.Is(err, lock.ErrStale):
		http.Error(w, fmt.Sprintf("%s is not held with token %d", r.FormValue("name"), token), http.StatusConflict)
	case errors.Is(err, lock.ErrNotHeld):
		http.Error(w, err.Error(), http.StatusNotFound)
	case err != nil:
		http.Error(w, err.Error(), http.StatusConflict)
	}
}

// serveKick ends a session.
func (v *service) serveKick(w http.ResponseWriter, r *http.Request) {
	id, err := lock.ParseSessionID(r.FormValue("id"))
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
	case !v.driver.Kick(id, "an administrator ended this session"):
		http.Error(w, "there is no session "+id.String(), http.StatusNotFound)
	}
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(v) // the client is gone
}
