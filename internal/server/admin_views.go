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
		Version: Version(), Started: s.started.UTC(), State: cmp.Or(s.election.state().String(), "serving"), Ready: true,
		Sessions: len(page.Sessions()), Transfers: page.Transfers(), RefusedJobs: page.RefusedJobs(),
	}
	v.Locks, v.Waiting = page.Count()
	if err := s.ready.await(ctx); err != nil {
		v.Ready, v.Error = false, err.Error()
	}
	return v
}

// serveLocks lists the locks, unless another server may have granted them again.
func (p source) serveLocks(w http.ResponseWriter, _ *http.Request) {
	all := p.Locks()
	if err := p.Valid(); err != nil {
		http.Error(w, err.Error(), statusSuspended)
		return
	}
	writeJSON(w, all)
}

// serveBreak ends the hold with the token.
func (p source) serveBreak(w http.ResponseWriter, r *http.Request) {
	token, err := strconv.ParseUint(r.FormValue("token"), 10, 64)
	if err == nil {
		err = p.Break(r.Context(), r.FormValue("name"), token, "administrator", r.FormValue("reason"))
	}
	if errors.Is(err, lock.ErrStale) {
		err = fmt.Errorf("%s is not held with token %d", r.FormValue("name"), token)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
	}
}

// serveClear allows refused jobs to change files again.
func (p source) serveClear(w http.ResponseWriter, r *http.Request) {
	account, address, _ := strings.Cut(r.FormValue("job"), "@")
	n := fromService(p.s, func(v *service) int {
		return v.jobs.Clear(lock.Name(r.FormValue("name")), account, address)
	})
	if n == 0 {
		http.Error(w, "no job is refused at "+r.FormValue("name"), http.StatusNotFound)
		return
	}
	writeJSON(w, n)
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = status.Write(w, v) // the client may have closed the connection
}
