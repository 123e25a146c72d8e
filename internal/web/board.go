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
	// restFactor is the pause after an update in multiples of its duration, so updates take a tenth of one processor. The same holds for the
	// opening of pages, with pauses up to maxRest.
	restFactor = 10
	maxRest    = 200 * time.Millisecond
)

// parts are the parts of the page that change. Each is a template, and the id of an element.
var parts = [...]string{"summary", "attention", "locks", "events", "transfers", "sessions"}

// locksPart is the part that depends on the view.
const locksPart = 2

const (
	shownRefused   = 20        // refused jobs
	shownAttention = 5         // rows of the tables before the locks
	shownWaiters   = 20        // and of their table of waiting clients
	shownOfQueue   = 5         // of which one queue has so many at most
	shownEvents    = 15        // of all groups; /events has more
	maxRows        = 10_000    // that are kept
	longHeld       = time.Hour // a lock that is held for longer is in the table before the others
)

// part is a rendered part of the page. It never changes.
type part struct {
	html    template.HTML
	encoded []byte // a member of a JSON object
}

// board has the contents of open pages. One update reads the state of the server for all of them.
type board struct {
	source Source
	past   *past

	changed atomic.Bool // there was an event since the last update

	mu     sync.Mutex
	at     time.Time           // of the last update; zero: the next page that is opened needs one
	took   time.Duration       // the last update, with the rendering of all views after it
	pages  int                 // open pages
	next   chan struct{}       // closed at the next update
	sorted map[string][]*entry // the locks of the last update by sort key; "" is the order of compare
	locks  map[view]*part      // rendered since the last update
	rows   map[row]template.HTML
	common map[bool]*allParts // those of all views, without and with the rights of an administrator
}

// allParts are the parts of one page.
type allParts [len(parts)]*part

// entry is a lock of the last update.
type entry struct {
	status.Lock
	text string // filterText of name, holder and note
}

// view is the part of the locks that a browser requests.
type view struct {
	Filter string // in the name, the holder or the note of a lock
	Page   int    // from 1
	Admin  bool
	Sort   string // a key of orders, with "-" before it for the opposite order; "": by name
}

func compare(a, b *status.Lock) int {
	return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.Token, b.Token))
}

// open adds a page until close. It returns the time that the rendering took.
func (b *board) open(v view) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.at.IsZero() || time.Since(b.at) >= max(refresh, restFactor*b.took) {
		b.updateLocked()
	}
	b.pages++
	began := time.Now()
	_, _ = b.partsLocked(v) // now returns an error again
	return time.Since(began)
}

// close removes a page.
func (b *board) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pages--
}

// now returns the parts of a view, and a channel that is closed at the next update.
func (b *board) now(v view) (all allParts, next <-chan struct{}, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all, err = b.partsLocked(v)
	return all, b.next, err
}

// partsLocked renders the parts of a view, each once after an update.
func (b *board) partsLocked(v view) (all allParts, err error) {
	began := time.Now()
	defer func() { b.took += time.Since(began) }()
	if b.common[v.Admin] == nil {
		if b.common[v.Admin], err = b.renderCommonLocked(v.Admin); err != nil {
			return all, err
		}
	}
	if b.locks[v] == nil {
		if b.locks[v], err = b.renderLocksLocked(v); err != nil {
			return all, err
		}
	}
	all = *b.common[v.Admin]
	all[locksPart] = b.locks[v]
	return all, nil
}

// notify makes the next tick update. It never waits.
func (b *board) notify() { b.changed.Store(true) }

// invalidate makes the next open or tick update.
func (b *board) invalidate() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at = time.Time{}
	b.changed.Store(true)
}

// tick updates if a page is open, an event came or idle has passed, and the pause after the last update is over. Call it every refresh.
func (b *board) tick() {
	b.mu.Lock()
	defer b.mu.Unlock()
	since := time.Since(b.at)
	if b.pages > 0 && since >= restFactor*b.took && (b.changed.Load() || since >= idle) {
		b.updateLocked()
	}
}

// updateLocked reads the locks, and makes open pages render their views.
func (b *board) updateLocked() {
	began := time.Now()
	b.changed.Store(false)
	b.sorted = map[string][]*entry{"": entries(b.source.Locks())}
	b.locks, b.common = make(map[view]*part), make(map[bool]*allParts)
	close(b.next)
	b.next = make(chan struct{})
	b.at = time.Now()
	b.took = b.at.Sub(began)
}

// entries returns the entries of locks in the order of compare.
func entries(locks []status.Lock) []*entry {
	all := make([]*entry, len(locks))
	for i, l := range locks {
		if !l.Expires.IsZero() { // it is computed from two clocks, so it varies by less than a second
			l.Expires.Time = l.Expires.Round(time.Second)
		}
		l.Age, l.ExpiresIn = 0, 0 // the script of the page computes them
		all[i] = &entry{l, filterText(l.Name, l.Owner(), l.Note)}
	}
	slices.SortStableFunc(all, func(x, y *entry) int { return compare(&x.Lock, &y.Lock) })
	return all
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

// renderLocksLocked renders the locks of a view.
func (b *board) renderLocksLocked(v view) (*part, error) {
	page, found := b.pickLocked(v)
	sc := &screen{View: v, Found: found, Rows: make([]template.HTML, len(page)), Visitor: Account{Admin: v.Admin}, Columns: v.columns()}
	for i, e := range page {
		var err error
		if sc.Rows[i], err = b.rowLocked(row{e.Lock, v.Admin}); err != nil {
			return nil, err
		}
	}
	if v.Page > 1 {
		sc.Previous = v.link(v.Page - 1)
	}
	if found > v.Page*perPage {
		sc.Next = v.link(v.Page + 1)
	}
	return render(parts[locksPart], sc)
}

// rowLocked renders a row once, and again when the lock has changed.
func (b *board) rowLocked(r row) (template.HTML, error) {
	if html, ok := b.rows[r]; ok {
		return html, nil
	}
	var text strings.Builder
	if err := pages.ExecuteTemplate(&text, "row", r); err != nil {
		return "", err
	}
	if len(b.rows) >= maxRows {
		clear(b.rows)
	}
	b.rows[r] = template.HTML(text.String()) //nolint:gosec // made and escaped by the template
	return b.rows[r], nil
}

// renderCommonLocked renders the parts of all views.
func (b *board) renderCommonLocked(admin bool) (*allParts, error) {
	sc := &screen{State: b.source.State(), Doubt: b.source.Valid(), Visitor: Account{Admin: admin}, Events: b.past.last(ofLocks, ofServer)}
	sc.Events = sc.Events[:min(len(sc.Events), shownEvents)]
	sc.Total, sc.Waiting = b.source.Count()
	sc.Refused = b.source.RefusedJobs()
	sc.Refused = sc.Refused[:min(len(sc.Refused), shownRefused)]
	sc.Sessions, sc.MoreSessions = firstOf(b.source.Sessions())
	sc.Transfers, sc.MoreTransfers = firstOf(b.source.Transfers())
	now := time.Now()
	sc.Old, sc.Waiters = b.oldLocked(now), b.waitersLocked()
	sc.MoreWaiters = max(0, sc.Waiting-len(sc.Waiters))
	sc.Refusals = b.past.topRefusals(now.Add(-time.Hour))
	all := new(allParts)
	for i, name := range parts {
		if i == locksPart {
			continue
		}
		var err error
		if all[i], err = render(name, sc); err != nil {
			return nil, err
		}
	}
	return all, nil
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
