package web

import (
	"bytes"
	"cmp"
	"encoding/json"
	"html/template"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ftplockd/ftplockd/internal/status"
)

const (
	// refresh is the shortest time between two updates of an open page.
	refresh = 500 * time.Millisecond
	// idle is the time between two updates without an event: transfers make progress, and sessions begin and end.
	idle = 5 * time.Second
	// rest is the pause after a look in multiples of its duration, so looks take a tenth of one processor. The same holds for the
	// opening of pages, with pauses up to mostRest.
	rest     = 10
	mostRest = 200 * time.Millisecond
)

// parts are the parts of the page that change. Each is a template, and the id of an element.
var parts = [...]string{"summary", "attention", "locks", "events", "transfers", "sessions"}

// locksPart is the part that depends on the view.
const locksPart = 2

const (
	shownRefused   = 20        // refused jobs
	shownAttention = 5         // rows of each table before the locks
	shownEvents    = 15        // of all groups; /events has more
	longHeld       = time.Hour // a lock that is held for longer is in the table before the others
)

// part is a rendered part of the page. It never changes.
type part struct {
	html    template.HTML
	encoded []byte // a member of a JSON object
}

// board has the contents of open pages. One look reads the server for all of them.
type board struct {
	source Source
	past   *past

	changed atomic.Bool // there was an event since the last look

	mu       sync.Mutex
	at       time.Time           // of the last look; zero: look again
	took     time.Duration       // the last look, with the rendering of all views
	looks    uint64              // number of looks
	sorted   map[string][]*entry // the locks by sort key, each sorted at most once per look; "" is the order of compare
	views    map[view]*shown
	pages    int                  // open pages
	next     chan struct{}        // closed at the next look
	common   [2][len(parts)]*part // parts of all views, without and with the rights of an administrator
	rendered [2]bool              // since the last look
}

// entry is a lock of the last look. Only its rows change.
type entry struct {
	status.Lock
	text string           // name and holder, for filters
	rows [2]template.HTML // without and with the rights of an administrator; "": not rendered yet
}

// view is the part of the locks that a browser requests.
type view struct {
	Filter string // in the name or the holder of a lock
	Page   int    // from 1
	Admin  bool
	Sort   string // a key of orders, with "-" before it for the opposite order; "": by name
}

// shown is the content of pages with one view.
type shown struct {
	view
	pages int
	look  uint64 // board.looks when locks was made
	found int    // locks that the filter accepts
	rows  []template.HTML
	locks *part
}

func compare(a, b *status.Lock) int {
	return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.Token, b.Token))
}

// open adds a view until close. It returns the time that the rendering took.
func (b *board) open(v view) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.at.IsZero() || time.Since(b.at) >= max(refresh, rest*b.took) {
		b.lookLocked()
	}
	began := time.Now()
	b.pages++
	of := b.views[v]
	if of == nil {
		of = &shown{view: v}
		b.views[v] = of
	}
	of.pages++
	_, _ = b.locksLocked(of) // now returns an error again
	_, _ = b.commonLocked(of.Admin)
	return time.Since(began)
}

// close removes a view when its last page is closed.
func (b *board) close(v view) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pages--
	if of := b.views[v]; of.pages > 1 {
		of.pages--
	} else {
		delete(b.views, v)
	}
}

// now returns the parts of an open view, and a channel that is closed at the next look.
func (b *board) now(v view) (all [len(parts)]*part, next <-chan struct{}, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if all, err = b.commonLocked(v.Admin); err == nil {
		all[locksPart], err = b.locksLocked(b.views[v])
	}
	return all, b.next, err
}

// notify makes the next tick look. It never waits.
func (b *board) notify() { b.changed.Store(true) }

// forget makes the next open look.
func (b *board) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at = time.Time{}
	b.changed.Store(true)
}

// tick looks if a page is open, an event came or idle has passed, and the pause after the last look is over. Call it every refresh.
func (b *board) tick() {
	b.mu.Lock()
	defer b.mu.Unlock()
	since := time.Since(b.at)
	if b.pages > 0 && since >= rest*b.took && (b.changed.Load() || since >= idle) {
		b.lookLocked()
	}
}

// lookLocked reads the server and renders all views.
func (b *board) lookLocked() {
	began := time.Now()
	b.changed.Store(false)
	b.looks++
	b.sorted = map[string][]*entry{"": entries(b.sorted[""], b.source.Locks())}
	b.rendered = [2]bool{}
	for _, of := range b.views { // now returns an error again
		_, _ = b.locksLocked(of)
		_, _ = b.commonLocked(of.Admin)
	}
	close(b.next)
	b.next = make(chan struct{})
	b.at = time.Now()
	b.took = b.at.Sub(began)
}

// entries returns the entries of locks in the order of compare. An unchanged lock keeps its entry, with the rendered rows.
func entries(before []*entry, now []status.Lock) []*entry {
	ordered := func(x, y status.Lock) int { return compare(&x, &y) }
	if !slices.IsSortedFunc(now, ordered) { // the holds of one name may come in another order
		slices.SortFunc(now, ordered)
	}
	after := make([]*entry, len(now))
	for i := range now {
		l := &now[i]
		for len(before) > 0 && compare(&before[0].Lock, l) < 0 {
			before = before[1:]
		}
		if len(before) > 0 && compare(&before[0].Lock, l) == 0 {
			was := before[0]
			// The expiry is computed from two clocks, so it varies by less than the page shows.
			if moved := l.Expires.Sub(was.Expires.Time); moved > -time.Second && moved < time.Second {
				l.Expires = was.Expires
			}
			l.Age, l.ExpiresIn = was.Age, was.ExpiresIn // the script of the page computes them
			if was.Lock == *l {
				after[i] = was
				continue
			}
		}
		after[i] = &entry{Lock: *l, text: l.Name + "\n" + l.Owner()}
	}
	return after
}

// pickLocked returns the locks of a view's page, and the number of all locks that its filter accepts.
func (b *board) pickLocked(v view) (page []*entry, found int) {
	first := (v.Page - 1) * perPage
	key, backward := strings.CutPrefix(v.Sort, "-")
	all := b.sortedLocked(key)
	for i, e := range all {
		if backward {
			e = all[len(all)-1-i]
		}
		if !strings.Contains(e.text, v.Filter) {
			continue
		}
		if found >= first && len(page) < perPage {
			page = append(page, e)
		}
		found++
	}
	return page, found
}

// sortedLocked returns all locks in the order of a key.
func (b *board) sortedLocked(key string) []*entry {
	if all, ok := b.sorted[key]; ok {
		return all
	}
	all := slices.Clone(b.sorted[""])
	for _, o := range orders {
		if o.key == key {
			slices.SortStableFunc(all, func(x, y *entry) int { return o.compare(&x.Lock, &y.Lock) })
		}
	}
	b.sorted[key] = all
	return all
}

// locksLocked renders the locks of a view once after each look. If they have not changed, the part stays the same.
func (b *board) locksLocked(of *shown) (*part, error) {
	if of.look == b.looks {
		return of.locks, nil
	}
	page, found := b.pickLocked(of.view)
	rows := make([]template.HTML, len(page))
	for i, e := range page {
		var err error
		if rows[i], err = e.row(of.Admin); err != nil {
			return nil, err
		}
	}
	if of.locks == nil || of.found != found || !slices.Equal(rows, of.rows) {
		sc := &screen{View: of.view, Found: found, Rows: rows, Visitor: Account{Admin: of.Admin}, Columns: of.columns()}
		if of.Page > 1 {
			sc.Previous = of.link(of.Page - 1)
		}
		if found > of.Page*perPage {
			sc.Next = of.link(of.Page + 1)
		}
		made, err := render(parts[locksPart], sc)
		if err != nil {
			return nil, err
		}
		of.rows, of.found, of.locks = rows, found, made
	}
	of.look = b.looks
	return of.locks, nil
}

// row renders the lock once for all views. Call it with board.mu held.
func (e *entry) row(admin bool) (template.HTML, error) {
	i := index(admin)
	if e.rows[i] == "" {
		var text strings.Builder
		if err := pages.ExecuteTemplate(&text, "row", row{e.Lock, admin}); err != nil {
			return "", err
		}
		e.rows[i] = template.HTML(text.String()) //nolint:gosec // made and escaped by the template
	}
	return e.rows[i], nil
}

// commonLocked renders the parts of all views once after each look.
func (b *board) commonLocked(admin bool) (all [len(parts)]*part, err error) {
	i := index(admin)
	if b.rendered[i] {
		return b.common[i], nil
	}
	sc := &screen{State: b.source.State(), Doubt: b.source.Valid(), Visitor: Account{Admin: admin}, Events: b.past.last(ofLocks, ofServer)}
	sc.Events = sc.Events[:min(len(sc.Events), shownEvents)]
	sc.Total, sc.Waiting = b.source.Count()
	sc.Refused = b.source.RefusedJobs()
	sc.Refused = sc.Refused[:min(len(sc.Refused), shownRefused)]
	sc.Sessions, sc.MoreSessions = some(b.source.Sessions())
	sc.Transfers, sc.MoreTransfers = some(b.source.Transfers())
	now := time.Now()
	sc.Old, sc.Queues = b.oldLocked(now), b.queuesLocked()
	sc.Refusals = b.past.refused(now.Add(-time.Hour))
	for n, name := range parts {
		if n == locksPart {
			continue
		}
		made, err := render(name, sc)
		if err != nil {
			return all, err
		}
		if was := b.common[i][n]; was == nil || was.html != made.html { // otherwise pages have it already
			b.common[i][n] = made
		}
	}
	b.rendered[i] = true
	return b.common[i], nil
}

func index(admin bool) int {
	if admin {
		return 1
	}
	return 0
}

// render renders a part of the page.
func render(name string, sc *screen) (*part, error) {
	var text strings.Builder
	if err := pages.ExecuteTemplate(&text, name, sc); err != nil {
		return nil, err
	}
	var encoded bytes.Buffer
	encoded.WriteString(`"` + name + `":`)
	e := json.NewEncoder(&encoded)
	e.SetEscapeHTML(false) // browsers do not parse it as HTML
	if err := e.Encode(text.String()); err != nil {
		return nil, err
	}
	return &part{template.HTML(text.String()), bytes.TrimSuffix(encoded.Bytes(), []byte("\n"))}, nil
}
