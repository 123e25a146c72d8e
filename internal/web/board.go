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
	// refresh is how often an open page changes at most.
	refresh = 500 * time.Millisecond
	// idle is how often an open page is refreshed when nothing happens: transfers move, and sessions come and go.
	idle = 5 * time.Second
	// rest is how many times as long as a look takes the next one waits at least, up to idle: looks take a tenth of one
	// processor. The same holds for the opening of pages, up to mostRest.
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
	shownEvents    = 15        // of all pages, /events has more
	longHeld       = time.Hour // a lock that is held for longer is shown before the others
)

// part is a part of the page as it is now. It is not changed; another one takes its place.
type part struct {
	html    template.HTML
	encoded []byte // a member of a JSON object
}

// board has what open pages show. It looks at the server once for all of them, and applies the filter of each to those locks
// that have changed since.
type board struct {
	source Source
	past   *past

	changed atomic.Bool // something has happened since the last look

	mu       sync.Mutex
	at       time.Time           // of the last look; zero: look again
	took     time.Duration       // the last look, with what the views made of it
	locks    []*entry            // sorted by compare
	sorted   map[string][]*entry // the same in other orders, since the last look
	marks    uint64              // counts the uses of entry.mark
	views    map[view]*shown
	pages    int                  // how many are open
	next     chan struct{}        // closed at the next look
	common   [2][len(parts)]*part // what all views have, without and with the rights of an administrator
	rendered [2]bool              // since the last look
	compared int                  // how many locks were compared with a filter
}

// entry is a lock that the board has seen. Only its rows and its mark change.
type entry struct {
	status.Lock
	rows [2]template.HTML // without and with the rights of an administrator; "": not rendered yet
	mark uint64
}

// view is what a browser asks to see.
type view struct {
	Filter string // in the name or the holder of a lock
	Page   int    // from 1
	Admin  bool
	Sort   string // a key of orders, with "-" before it for the opposite order; "": by name
}

// shown is what pages with one view show.
type shown struct {
	view
	pages int
	found []*entry // which the filter lets through
	rows  []template.HTML
	count int // of found, when the part was rendered
	locks *part
}

// change is one between two looks. One of its locks may be nil.
type change struct{ before, after *entry }

func compare(a, b *status.Lock) int {
	return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.Token, b.Token))
}

// open keeps a view until close. It returns how long it took to compare the view with all locks.
func (b *board) open(v view) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.at.IsZero() || time.Since(b.at) >= max(refresh, b.pauseLocked()) {
		b.lookLocked()
	}
	began := time.Now()
	b.pages++
	of := b.views[v]
	if of == nil {
		of = &shown{view: v, found: b.locks}
		if v.Filter != "" {
			of.found = nil
			for _, e := range b.locks {
				if b.passesLocked(of, e) {
					of.found = append(of.found, e)
				}
			}
		}
		b.views[v] = of
	}
	of.pages++
	_, _ = b.locksLocked(of) // an error comes again when the page gets the parts
	_, _ = b.commonLocked(of.Admin)
	return time.Since(began)
}

// pauseLocked is how long the next look waits after the last one.
func (b *board) pauseLocked() time.Duration { return min(rest*b.took, idle) }

// close forgets a view when its last page is closed.
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

// now returns the parts of an open view, and what is closed when there are others.
func (b *board) now(v view) (all [len(parts)]*part, next <-chan struct{}, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if all, err = b.commonLocked(v.Admin); err == nil {
		all[locksPart], err = b.locksLocked(b.views[v])
	}
	return all, b.next, err
}

// tell has the board look again soon. It never waits.
func (b *board) tell() {
	b.changed.Store(true)
}

// forget has the next page that is opened see what stands then.
func (b *board) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at = time.Time{}
	b.changed.Store(true)
}

// tick looks at the server if a page is open and it is time. It is to be called each refresh.
func (b *board) tick() {
	b.mu.Lock()
	defer b.mu.Unlock()
	since := time.Since(b.at)
	if b.pages > 0 && since >= b.pauseLocked() && (b.changed.Load() || since >= idle) {
		b.lookLocked()
	}
}

// lookLocked looks at the server, and shows all views what has changed.
func (b *board) lookLocked() {
	began := time.Now()
	b.changed.Store(false)
	b.sorted = make(map[string][]*entry)
	b.rendered = [2]bool{}
	var changes []change
	b.locks, changes = merge(b.locks, b.source.Locks())
	for _, of := range b.views { // an error comes again when a page gets the parts
		b.applyLocked(of, changes)
		_, _ = b.locksLocked(of)
		_, _ = b.commonLocked(of.Admin)
	}
	close(b.next)
	b.next = make(chan struct{})
	b.at = time.Now()
	b.took = b.at.Sub(began)
}

// merge returns the locks of a look, those that have not changed as they were, and what has changed.
func merge(before []*entry, now []status.Lock) (after []*entry, changes []change) {
	ordered := func(x, y status.Lock) int { return compare(&x, &y) }
	if !slices.IsSortedFunc(now, ordered) { // the holds of one name may come otherwise
		slices.SortFunc(now, ordered)
	}
	after = make([]*entry, 0, len(now))
	for i := range now {
		l := &now[i]
		for len(before) > 0 && compare(&before[0].Lock, l) < 0 {
			changes = append(changes, change{before: before[0]})
			before = before[1:]
		}
		var was *entry
		if len(before) > 0 && compare(&before[0].Lock, l) == 0 {
			was, before = before[0], before[1:]
			// What is left until the end is told with less precision than is shown: no change is made of that.
			if moved := l.Expires.Sub(was.Expires.Time); moved > -time.Second && moved < time.Second {
				l.Expires = was.Expires
			}
			l.Age, l.ExpiresIn = was.Age, was.ExpiresIn // the page computes them
			if was.Lock == *l {
				after = append(after, was)
				continue
			}
		}
		is := &entry{Lock: *l}
		after = append(after, is)
		changes = append(changes, change{was, is})
	}
	for _, e := range before {
		changes = append(changes, change{before: e})
	}
	return after, changes
}

// applyLocked has a view take over what has changed.
func (b *board) applyLocked(of *shown, changes []change) {
	if of.Filter == "" {
		of.found = b.locks
		return
	}
	rest, next := of.found, []*entry(nil)
	for _, c := range changes {
		was, is := b.passesLocked(of, c.before), b.passesLocked(of, c.after)
		if !was && !is {
			continue
		}
		at := c.after
		if at == nil {
			at = c.before
		}
		i, _ := slices.BinarySearchFunc(rest, &at.Lock, func(e *entry, l *status.Lock) int { return compare(&e.Lock, l) })
		next, rest = append(next, rest[:i]...), rest[i:]
		if was {
			rest = rest[1:]
		}
		if is {
			next = append(next, c.after)
		}
	}
	if next != nil || len(rest) < len(of.found) {
		of.found = append(next, rest...)
	}
}

// passesLocked reports whether the filter of a view lets a lock through. It does not let nil through.
func (b *board) passesLocked(of *shown, e *entry) bool {
	if e == nil {
		return false
	}
	b.compared++
	return strings.Contains(e.Name, of.Filter) || strings.Contains(e.Owner(), of.Filter)
}

// locksLocked renders the locks of a view, if they are not as they were.
func (b *board) locksLocked(of *shown) (*part, error) {
	first := min((of.Page-1)*perPage, len(of.found))
	page := b.pageLocked(of, first)
	rows := make([]template.HTML, len(page))
	for i, e := range page {
		var err error
		if rows[i], err = b.rowLocked(e, of.Admin); err != nil {
			return nil, err
		}
	}
	if of.locks != nil && of.count == len(of.found) && slices.Equal(rows, of.rows) {
		return of.locks, nil
	}
	sc := &screen{View: of.view, Found: len(of.found), Rows: rows, Visitor: Account{Admin: of.Admin}, Columns: of.columns()}
	if of.Page > 1 {
		sc.Previous = of.link(of.Page - 1)
	}
	if len(of.found) > first+perPage {
		sc.Next = of.link(of.Page + 1)
	}
	made, err := render(parts[locksPart], sc)
	if err == nil {
		of.rows, of.count, of.locks = rows, len(of.found), made
	}
	return made, err
}

// rowLocked renders a lock once for all views.
func (b *board) rowLocked(e *entry, admin bool) (template.HTML, error) {
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

// commonLocked renders the parts that all views have, once for each look.
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
		if was := b.common[i][n]; was == nil || was.html != made.html { // else pages have it already
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

// render makes a part of the page.
func render(name string, sc *screen) (*part, error) {
	var text strings.Builder
	if err := pages.ExecuteTemplate(&text, name, sc); err != nil {
		return nil, err
	}
	var encoded bytes.Buffer
	encoded.WriteString(`"` + name + `":`)
	e := json.NewEncoder(&encoded)
	e.SetEscapeHTML(false) // it is no part of a page that is parsed as HTML
	if err := e.Encode(text.String()); err != nil {
		return nil, err
	}
	return &part{template.HTML(text.String()), bytes.TrimSuffix(encoded.Bytes(), []byte("\n"))}, nil
}
