package web

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/ftplockd/ftplockd/internal/event"
)

//go:embed assets
var assets embed.FS

var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"name": printable, "time": clockTime, "stamp": stamp, "bytes": byteCount,
}).ParseFS(assets, "assets/*.html"))

// assetHandler serves the style, the script and the chart library.
func assetHandler() http.Handler {
	sub, err := fs.Sub(assets, "assets")
	if err != nil {
		panic(err) // "assets" is a valid path
	}
	files := http.StripPrefix("/assets/", http.FileServerFS(sub))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, ".js"), strings.HasSuffix(r.URL.Path, ".css"), strings.HasSuffix(r.URL.Path, ".svg"):
			w.Header().Set("Cache-Control", "max-age=300")
			files.ServeHTTP(w, r)
		default:
			http.NotFound(w, r)
		}
	})
}

// perPage is how many locks, sessions and transfers a page shows.
const perPage = 100

// view is what a browser asks to see.
type view struct {
	Filter string // in the name or the holder of a lock
	Page   int    // from 1
}

func viewOf(r *http.Request) view {
	page, _ := strconv.Atoi(r.FormValue("page"))
	return view{Filter: r.FormValue("q"), Page: max(page, 1)}
}

// link leads to another page of the same view.
func (v view) link(page int) string {
	q := url.Values{}
	if v.Filter != "" {
		q.Set("q", v.Filter)
	}
	q.Set("page", strconv.Itoa(page))
	return "/?" + q.Encode()
}

// row is a lock as the page shows it.
type row struct {
	Lock
	Queue []Waiter
	More  int // who wait, beyond those in Queue
}

// shownWaiters is how many of those who wait for a lock are shown.
const shownWaiters = 20

// screen is what the templates show.
type screen struct {
	Version       string
	Now           time.Time
	Visitor       Account
	LoggedIn      bool
	Word          string // what forms carry
	View          view
	Total, Found  int
	Waiting       int
	State         string
	Locks         []row
	Previous      string // links, "" for none
	Next          string
	Sessions      []Session
	MoreSessions  int
	Transfers     []Transfer
	MoreTransfers int
	Events        []event.Event
	Message       string
	Subject       any // of a page that asks back
}

// screen shows what stands as a browser asks to see it.
func (s *Server) screen(r *http.Request, seen *snapshot) *screen {
	v := viewOf(r)
	sc := s.emptyScreen(r)
	sc.State = s.o.Source.State()
	sc.View, sc.Now, sc.Total, sc.Waiting = v, seen.at, len(seen.locks), waitingIn(seen.locks)
	first := (v.Page - 1) * perPage
	for _, l := range seen.locks {
		if v.Filter != "" && !strings.Contains(l.Name, v.Filter) && !strings.Contains(l.Holder, v.Filter) {
			continue
		}
		if sc.Found >= first && sc.Found < first+perPage {
			sc.Locks = append(sc.Locks, s.row(l))
		}
		sc.Found++
	}
	if v.Page > 1 {
		sc.Previous = v.link(v.Page - 1)
	}
	if sc.Found > first+perPage {
		sc.Next = v.link(v.Page + 1)
	}
	sc.Sessions, sc.MoreSessions = some(seen.sessions)
	sc.Transfers, sc.MoreTransfers = some(seen.transfers)
	sc.Events = s.past.last()
	return sc
}

func (s *Server) emptyScreen(r *http.Request) *screen {
	sc := &screen{Version: s.o.Version, Now: time.Now()}
	sc.Visitor, sc.Word, sc.LoggedIn = s.visitor(r)
	return sc
}

func (s *Server) row(l Lock) row {
	r := row{Lock: l}
	if l.Waiting > 0 {
		r.Queue = s.o.Source.Waiting(l.Name)
		if r.More = len(r.Queue) - shownWaiters; r.More > 0 {
			r.Queue = r.Queue[:shownWaiters]
		}
	}
	return r
}

// some returns as many as a page shows, and how many are left out.
func some[T any](all []T) ([]T, int) {
	if len(all) <= perPage {
		return all, 0
	}
	return all[:perPage], len(all) - perPage
}

func (s *Server) page(w http.ResponseWriter, r *http.Request) {
	s.write(w, http.StatusOK, "page", s.screen(r, s.look()))
}

// render shows a small page with a message.
func (s *Server) render(w http.ResponseWriter, r *http.Request, status int, page, message string) {
	sc := s.emptyScreen(r)
	sc.Message = message
	s.write(w, status, page, sc)
}

func (s *Server) message(w http.ResponseWriter, r *http.Request, status int, text string) {
	s.render(w, r, status, "message", text)
}

func (s *Server) write(w http.ResponseWriter, status int, page string, sc *screen) {
	var b bytes.Buffer
	if err := pages.ExecuteTemplate(&b, page, sc); err != nil {
		plain(w, http.StatusInternalServerError, "the page could not be made: "+err.Error())
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = b.WriteTo(w) // the client is gone
}

// parts are the parts of the page that change; each is a template, and the id of an element.
var parts = []string{"summary", "locks", "transfers", "sessions", "events"}

// idle is how often an open page is refreshed when nothing happens: transfers move, and sessions come and go.
const idle = 5 * time.Second

// takesIn is how long a browser may take for what it is sent.
const takesIn = 30 * time.Second

// stream sends the parts of the page whenever something has changed (server-sent events of the HTML standard).
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	select {
	case s.open <- struct{}{}:
		defer func() { <-s.open }()
	default:
		plain(w, http.StatusServiceUnavailable, "too many pages are open")
		return
	}
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	last := make(map[string]string)
	for {
		_ = out.SetWriteDeadline(time.Now().Add(takesIn)) // where there is none, the writes wait
		seen := s.look()
		if err := s.sendParts(w, r, seen, last); err != nil {
			return
		}
		if err := out.Flush(); err != nil {
			return
		}
		select { // no more than one in this time
		case <-time.After(refresh):
		case <-r.Context().Done():
			return
		}
		select {
		case <-seen.changed:
		case <-time.After(idle - refresh):
		case <-r.Context().Done():
			return
		}
	}
}

// sendParts sends those parts that are not as they were last.
func (s *Server) sendParts(w http.ResponseWriter, r *http.Request, seen *snapshot, last map[string]string) error {
	if s.o.Login {
		if _, _, ok := s.visitor(r); !ok { // the visit is over
			_, err := fmt.Fprint(w, "event: over\ndata: {}\n\n")
			return err
		}
	}
	sc := s.screen(r, seen)
	news := make(map[string]string)
	for _, part := range parts {
		var b strings.Builder
		if err := pages.ExecuteTemplate(&b, part, sc); err != nil {
			return err
		}
		if text := b.String(); text != last[part] {
			news[part], last[part] = text, text
		}
	}
	data, err := json.Marshal(news)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "event: parts\ndata: %s\n\n", data)
	return err
}

// printable shows bytes as text: what is no UTF-8, what cannot be seen and what changes the direction of writing is escaped
// as in Go.
func printable(name string) string {
	var b strings.Builder
	for i := 0; i < len(name); {
		r, size := utf8.DecodeRuneInString(name[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, name[i])
		case r == '\\':
			b.WriteString(`\\`)
		case unicode.IsGraphic(r):
			b.WriteRune(r)
		default:
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		i += size
	}
	return b.String()
}

func clockTime(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }

// stamp is a moment as the script reads it: milliseconds since 1970, 0 for none.
func stamp(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func byteCount(n int64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	value, unit := float64(n)/1024, 0
	for value >= 1024 && unit < len(units)-1 {
		value /= 1024
		unit++
	}
	return fmt.Sprintf("%.1f %ciB", value, units[unit])
}
