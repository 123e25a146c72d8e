package web

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/ftplockd/ftplockd/internal/event"
	"github.com/ftplockd/ftplockd/internal/status"
)

var (
	//go:embed assets/*.js assets/*.css assets/*.svg
	assets embed.FS
	//go:embed assets/page.html
	templates string
)

var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"name": printable, "halves": halvesOf, "utc": utc, "iso": iso, "stamp": stamp, "bytes": byteCount, "span": span, "client": client,
	"accountAndAddress": accountAndAddress, "kind": kindText, "details": details, "seconds": func(s float64) string { return span(time.Duration(s * float64(time.Second))) },
	"add": func(a, b int) int { return a + b },
}).Parse(templates))

// asset serves the style, the scripts and the icon.
func (s *Server) asset(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "max-age=300")
	http.ServeFileFS(w, r, assets, "assets/"+r.PathValue("name"))
}

const (
	perPage = 25  // locks
	perList = 100 // sessions, transfers, waiters and entries of a history
)

func (s *Server) viewOf(r *http.Request) view {
	page, _ := strconv.Atoi(r.FormValue("page"))
	a, ok := s.visitor(r)
	return view{Filter: escaped(r.FormValue("q")), Page: min(max(page, 1), 1<<20), Admin: ok && a.Admin, Sort: sortKey(r.FormValue("sort"))}
}

// link returns the address of a page of the same view.
func (v view) link(page int) string {
	q := url.Values{}
	if v.Filter != "" {
		q.Set("q", v.Filter)
	}
	if v.Sort != "" {
		q.Set("sort", v.Sort)
	}
	if page > 1 {
		q.Set("page", strconv.Itoa(page))
	}
	return "/?" + q.Encode()
}

// row is a lock in the table.
type row struct {
	status.Lock
	Admin bool
}

// screen has the data of the templates.
type screen struct {
	Version       string
	Visitor       Account
	LoggedIn      bool
	Parts         map[string]template.HTML // of the page
	View          view
	Total, Found  int
	Waiting       int
	Refused       []status.RefusedJob
	State         string
	Doubt         error           // why another server may have granted the locks again
	Rows          []template.HTML // of locks
	Previous      string          // links, "" for none
	Next          string
	Sessions      []status.Session
	MoreSessions  int
	Transfers     []status.Transfer
	MoreTransfers int
	Events        []event.Event
	Old           []attention // locks that are held for long
	Waiters       []waiter
	MoreWaiters   int
	Refusals      []refusal
	Columns       []column
	Kinds         []kind // of events
	Title         string
	Message       string
	Subject       any // of a page about one lock or session
}

func (s *Server) emptyScreen(r *http.Request) *screen {
	sc := &screen{Version: s.o.Version}
	sc.Visitor, sc.LoggedIn = s.visitor(r)
	return sc
}

// firstOf returns the elements that a page shows, and the number of the others.
func firstOf[T any](all []T) ([]T, int) {
	if len(all) <= perList {
		return all, 0
	}
	return all[:perList], len(all) - perList
}

func (s *Server) page(w http.ResponseWriter, r *http.Request) {
	v := s.viewOf(r)
	if s.open(r.Context(), v) != nil {
		return // the client is gone
	}
	defer s.board.close()
	all, _, err := s.board.now(v)
	if err != nil {
		plain(w, http.StatusInternalServerError, "the page could not be made: "+err.Error())
		return
	}
	sc := s.emptyScreen(r)
	sc.View, sc.Parts = v, make(map[string]template.HTML)
	for i, name := range parts {
		sc.Parts[name] = all[i].html
	}
	s.write(w, http.StatusOK, "page", sc)
}

// open opens a view of the board. It returns an error if ctx has ended.
func (s *Server) open(ctx context.Context, v view) error {
	return inTurn(ctx, s.pageTurn, func() time.Duration { return s.board.open(v) })
}

// inTurn runs work that reads many locks or events, one request after the other, with pauses of several times the duration that
// the work returns. It returns an error if ctx ends before its turn.
func inTurn(ctx context.Context, turn chan struct{}, work func() time.Duration) error {
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	rest := time.Duration(0)
	defer func() { time.AfterFunc(rest, func() { <-turn }) }() // after a panic of work, too
	rest = min(restFactor*work(), maxRest)
	return nil
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

// streamWriteWithin bounds the time in which a browser must read a change.
const streamWriteWithin = 30 * time.Second

// stream sends the parts of the page whenever they have changed (server-sent events of the HTML standard).
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		plain(w, http.StatusServiceUnavailable, "too many pages are open")
		return
	}
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	visitor, _ := s.visitor(r)
	v := s.viewOf(r)
	if s.open(r.Context(), v) != nil {
		return
	}
	defer s.board.close()
	var last allParts
	for {
		_ = out.SetWriteDeadline(time.Now().Add(streamWriteWithin)) // without deadlines, the writes wait
		if now, _ := s.visitor(r); now != visitor {                 // the visit is over; without a need for a login the browser connects again
			if s.o.Login {
				_, _ = io.WriteString(w, "event: over\ndata: {}\n\n")
			}
			return
		}
		now, next, err := s.board.now(v)
		if err != nil {
			return
		}
		if err := sendParts(w, now, last); err != nil {
			return
		}
		if err := out.Flush(); err != nil {
			return
		}
		last = now
		select {
		case <-next:
		case <-r.Context().Done():
			return
		}
	}
}

// sendParts sends the parts that have changed.
func sendParts(w io.Writer, now, last allParts) error {
	before := "event: parts\ndata: {"
	for i, p := range now {
		if last[i] != nil && p.html == last[i].html {
			continue
		}
		if _, err := io.WriteString(w, before); err != nil {
			return err
		}
		if _, err := w.Write(p.encoded); err != nil {
			return err
		}
		before = ","
	}
	if before != "," {
		_, err := io.WriteString(w, before+"}\n\n")
		return err
	}
	_, err := io.WriteString(w, "}\n\n")
	return err
}

// printable returns bytes as text. It escapes bytes that are not UTF-8, invisible characters, and those that change the direction of writing, as Go
// does. It doubles backslashes, so two names never look the same.
func printable(name string) string { return escaped(strings.ReplaceAll(name, `\`, `\\`)) }

// escaped is printable with single backslashes. It changes nothing in its own result.
func escaped(name string) string {
	var b strings.Builder
	for i := 0; i < len(name); {
		r, size := utf8.DecodeRuneInString(name[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, name[i])
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

// filterText returns the text in which a filter looks for a part: each string as an escaped filter can have it, and as the page shows it.
func filterText(all ...string) string {
	var lines []string
	for _, s := range all {
		lines = append(lines, escaped(s))
		if strings.Contains(s, `\`) {
			lines = append(lines, printable(s))
		}
	}
	return strings.Join(lines, "\n")
}

// tailColumns is how many columns of text a short name keeps of its end; style.css has the same number.
const tailColumns = 12

// halves are the two parts of a name: without room, the page shortens the head.
type halves struct{ Head, Tail string }

// halvesOf returns the parts of a name as printable text.
func halvesOf(name string) halves {
	text := printable(name)
	at := len(text)
	for columns := 0; at > 0; {
		r, size := utf8.DecodeLastRuneInString(text[:at])
		switch {
		case unicode.Is(unicode.M, r): // it belongs to the character before it
		case r >= 0x1100: // the first wide characters
			columns += 2
		default:
			columns++
		}
		if columns > tailColumns {
			break
		}
		at -= size
	}
	for at < len(text) { // marks of the last character of the head
		r, size := utf8.DecodeRuneInString(text[at:])
		if !unicode.Is(unicode.M, r) {
			break
		}
		at += size
	}
	return halves{text[:at], text[at:]}
}

// kindText returns what happened, for people.
func kindText(e event.Event) string {
	switch {
	case e.Kind == event.Refuse:
		return "lock refused"
	case e.Kind == event.Protect:
		return "change refused"
	case e.Kind == event.Job && e.Cause == "two-runs":
		return "two programs in one job"
	case e.Kind == event.Job:
		return "job refused"
	case e.Kind == event.Unconfirmed:
		return "publish, unconfirmed"
	case e.Kind == event.LoginFailed:
		return "login failed"
	case e.Cause != "" && e.Cause != string(e.Kind):
		return string(e.Kind) + ", " + e.Cause
	}
	return string(e.Kind)
}

func utc(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

func iso(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// span formats a duration. Its units are coarse, so that an open page changes rarely.
func span(d time.Duration) string {
	minutes := int(d / time.Minute)
	switch {
	case minutes < 1:
		return "< 1m"
	case minutes < 60:
		return fmt.Sprintf("%dm", minutes)
	case minutes < 24*60:
		return fmt.Sprintf("%dh %02dm", minutes/60, minutes%60)
	}
	return fmt.Sprintf("%dd %02dh", minutes/60/24, minutes/60%24)
}

// subject returns the name of the lock or file that an event is about.
func subject(e event.Event) string { return cmp.Or(e.Path, e.Lock) }

// client returns the client that caused an event, as far as the event has it.
func client(e event.Event) string {
	if e.Holder.Account == "" && e.Account != "" && e.Remote != "" {
		return e.Account + "@" + e.Remote
	}
	return cmp.Or(e.Holder.String(), e.Account, e.Remote)
}

// who is a client; without an address, it is only an account.
type who struct{ Account, Address string }

// accountAndAddress splits account@address. An account may contain an @.
func accountAndAddress(owner string) who {
	if i := strings.LastIndexByte(owner, '@'); i >= 0 {
		return who{owner[:i], owner[i+1:]}
	}
	return who{Account: owner}
}

// details returns the facts of an event that have no column.
func details(e event.Event) string {
	var all []string
	if e.Reason != "" {
		all = append(all, printable(e.Reason))
	}
	if by := e.By.String(); by != "" {
		all = append(all, "by "+printable(by))
	}
	if e.Path != "" && groupOf(e.Kind) != ofRefusals {
		all = append(all, byteCount(e.Bytes))
	}
	if e.Token != 0 {
		all = append(all, fmt.Sprint("token ", e.Token))
	}
	return strings.Join(all, ", ")
}

// stamp returns a moment for the script: milliseconds since 1970, 0 for none.
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
