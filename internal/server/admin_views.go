package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/status"
)

// status returns the state of the server.
func (s *server) status(ctx context.Context) status.Server {
	page := source{s}
	v := status.Server{
		Version: Version(), Started: s.started.UTC(), State: cmp.Or(s.clusterState().String(), "serving"), Ready: true,
		Sessions: len(page.Sessions()), Transfers: page.Transfers(), RefusedJobs: page.RefusedJobs(),
	}
	v.Locks, v.Waiting = page.Count()
	if err := s.ready.ask(ctx); err != nil {
		v.Ready, v.Error = false, err.Error()
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
	answer(w, status.Locks(all, v.server.clock.Now()))
}

func (v *service) serveSessions(w http.ResponseWriter, _ *http.Request) {
	answer(w, status.Sessions(v.table.Sessions()))
}

// serveBreak ends the hold with the token.
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

// serveClear allows refused jobs to change files again.
func (v *service) serveClear(w http.ResponseWriter, r *http.Request) {
	account, address, _ := strings.Cut(r.FormValue("job"), "@")
	n := v.table.ClearJobs(r.Context(), lock.Name(r.FormValue("name")), account, address)
	if n == 0 {
		http.Error(w, "no job is refused at "+r.FormValue("name"), http.StatusNotFound)
		return
	}
	answer(w, n)
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
	_ = status.Write(w, v) // the client may have closed the connection
}
