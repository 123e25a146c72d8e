package web

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ftplockd/ftplockd/internal/event"
	"github.com/ftplockd/ftplockd/internal/status"
)

// historyWithin bounds how long the page of a lock waits for its history.
const historyWithin = 10 * time.Second

// lockDetails is what the page of a lock shows.
type lockDetails struct {
	Holds     []status.Lock
	Queue     []status.Waiter
	MoreQueue int
	Rule      []Fact
	Files     []status.Event // publications
	History   []status.Event // other events
	Problem   error          // why there is no history
}

// lockPage shows one lock: holders, queue, rule and history.
func (s *Server) lockPage(w http.ResponseWriter, r *http.Request) {
	name := r.FormValue("name")
	var d *lockDetails
	if inTurn(r.Context(), s.historyTurn, func() time.Duration {
		began := time.Now()
		d = s.lockDetails(r.Context(), name)
		return time.Since(began)
	}) != nil {
		return // the client is gone
	}
	sc := s.emptyScreen(r)
	sc.Title, sc.Subject, sc.Doubt = name, d, s.o.Source.Valid()
	code := http.StatusOK
	if len(d.Holds)+len(d.Rule)+len(d.Files)+len(d.History) == 0 && d.Problem == nil {
		code = http.StatusNotFound
	}
	s.write(w, code, "lock", sc)
}

func (s *Server) lockDetails(ctx context.Context, name string) *lockDetails {
	d := &lockDetails{Rule: s.o.Source.Rule(name)}
	for _, l := range s.o.Source.Locks() {
		if l.Name == name {
			d.Holds = append(d.Holds, l)
		}
	}
	d.Queue, d.MoreQueue = firstOf(s.o.Source.Waiting(name))
	ctx, cancel := context.WithTimeout(ctx, historyWithin)
	defer cancel()
	all, err := s.o.Source.History(ctx, name, perList)
	d.Problem = err
	for _, e := range all {
		if e.Path != "" {
			d.Files = append(d.Files, e)
		} else {
			d.History = append(d.History, e)
		}
	}
	return d
}

// kind is a choice of events.
type kind struct {
	Kind, Title string
	Chosen      bool
	groups      []group
}

// eventPage shows the last events of a kind that contain a text.
func (s *Server) eventPage(w http.ResponseWriter, r *http.Request) {
	kinds := []kind{
		{Title: "All", groups: []group{ofLocks, ofRefusals, ofFiles, ofLogins, ofServer}},
		{Kind: "locks", Title: "Locks", groups: []group{ofLocks}},
		{Kind: "refusals", Title: "Refusals", groups: []group{ofRefusals}},
		{Kind: "files", Title: "Files", groups: []group{ofFiles}},
		{Kind: "logins", Title: "Logins", groups: []group{ofLogins}},
		{Kind: "server", Title: "Server", groups: []group{ofServer}},
	}
	i := max(0, slices.IndexFunc(kinds, func(k kind) bool { return k.Kind == r.FormValue("kind") }))
	kinds[i].Chosen = true
	sc := s.emptyScreen(r)
	sc.Title, sc.Kinds, sc.View.Filter = "Events", kinds, escaped(r.FormValue("q"))
	sc.Events = slices.DeleteFunc(s.past.last(kinds[i].groups...), func(e event.Event) bool {
		text := filterText(string(e.Kind), kindText(e), e.Lock, e.Path, client(e), e.By.String(), e.Reason)
		return !strings.Contains(text, sc.View.Filter)
	})
	s.write(w, http.StatusOK, "eventpage", sc)
}
