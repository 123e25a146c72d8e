package config

import (
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// nodeKind is what a value in the file is.
type nodeKind string

const (
	isTable   nodeKind = "a table"
	isArray   nodeKind = "a list"
	isString  nodeKind = "a string"
	isInteger nodeKind = "a number"
	isBool    nodeKind = "true or false"
	isOther   nodeKind = "a number with a fraction or a date"
)

// node is one value of the file and the line where it stands. The library's own
// decoder stops at the first error and tells no line of a value that it liked,
// so the file is read into this tree first.
type node struct {
	kind nodeKind
	line int

	text    string           // of a string
	number  int64            // of an integer
	yes     bool             // of a bool
	items   []*node          // of an array
	names   []string         // of a table, in the order of the file
	members map[string]*node // of a table
	headers bool             // an array that [[name]] headers fill
}

func newTable(line int) *node {
	return &node{kind: isTable, line: line, members: make(map[string]*node)}
}

func (n *node) set(name string, member *node) {
	if _, ok := n.members[name]; !ok {
		n.names = append(n.names, name)
	}
	n.members[name] = member
}

// reader builds the tree of one file.
type reader struct {
	parser unstable.Parser
	starts []int  // where each line starts
	errs   Errors // without file names
}

// readTree returns the tree of the file as far as it could be read, and what is
// wrong with it as TOML.
func readTree(data []byte) (*node, Errors) {
	r := &reader{starts: []int{0}}
	for i, c := range data {
		if c == '\n' {
			r.starts = append(r.starts, i+1)
		}
	}
	r.parser.Reset(data)
	root := newTable(0)
	table := root
	for r.parser.NextExpression() {
		switch e := r.parser.Expression(); e.Kind {
		case unstable.Table, unstable.ArrayTable:
			table = r.open(root, e)
		case unstable.KeyValue:
			r.assign(table, e)
		}
	}
	r.judge(data)
	return root, r.errs
}

// judge adds what the library has against the file, unless that line is known
// to be wrong. It knows all rules of TOML, this reader only the useful ones.
func (r *reader) judge(data []byte) {
	var all map[string]any
	err := toml.Unmarshal(data, &all)
	if err == nil {
		return
	}
	line, key := 0, ""
	var at *toml.DecodeError
	if errors.As(err, &at) {
		line, _ = at.Position()
		key = strings.Join(at.Key(), ".")
	}
	for _, e := range r.errs {
		if e.Line == line {
			return
		}
	}
	r.errs = append(r.errs, Error{Line: line, Key: key, Message: strings.TrimPrefix(err.Error(), "toml: ")})
}

func (r *reader) line(raw unstable.Range) int {
	return sort.SearchInts(r.starts, int(raw.Offset)+1)
}

func (r *reader) fail(line int, key, format string, args ...any) {
	r.errs = append(r.errs, Error{Line: line, Key: key, Message: fmt.Sprintf(format, args...)})
}

// open returns the table of a [header] or a new one for a [[header]].
func (r *reader) open(root *node, e *unstable.Node) *node {
	names, line := r.key(e)
	parent := r.descend(root, names[:len(names)-1], line)
	last := names[len(names)-1]
	known := parent.members[last]
	table := newTable(line)
	switch {
	case e.Kind == unstable.ArrayTable && known == nil:
		parent.set(last, &node{kind: isArray, line: line, items: []*node{table}, headers: true})
	case e.Kind == unstable.ArrayTable && known.headers:
		known.items = append(known.items, table)
	case known == nil:
		parent.set(last, table)
	case e.Kind == unstable.Table && known.kind == isTable:
		return known // a second time, or after a [header.below]: the library judges
	default:
		r.fail(line, strings.Join(names, "."), "already set in line %d", known.line)
	}
	return table
}

// assign puts the value of a key into the table.
func (r *reader) assign(table *node, e *unstable.Node) {
	names, line := r.key(e)
	parent := r.descend(table, names[:len(names)-1], line)
	last := names[len(names)-1]
	if known := parent.members[last]; known != nil {
		r.fail(line, strings.Join(names, "."), "already set in line %d", known.line)
		return
	}
	parent.set(last, r.value(e.Value(), line))
}

// descend returns the table below that one, making what is missing.
func (r *reader) descend(table *node, names []string, line int) *node {
	for i, name := range names {
		next := table.members[name]
		switch {
		case next == nil:
			next = newTable(line)
			table.set(name, next)
		case next.headers:
			next = next.items[len(next.items)-1]
		case next.kind != isTable:
			r.fail(line, strings.Join(names[:i+1], "."), "already set in line %d", next.line)
			next = newTable(line)
		}
		table = next
	}
	return table
}

// key returns the parts of an expression's key and its line.
func (r *reader) key(e *unstable.Node) (names []string, line int) {
	for it := e.Key(); it.Next(); {
		if names == nil {
			line = r.line(it.Node().Raw)
		}
		names = append(names, string(it.Node().Data))
	}
	return names, line
}

func (r *reader) value(v *unstable.Node, line int) *node {
	if v.Raw.Length > 0 {
		line = r.line(v.Raw)
	}
	n := &node{line: line}
	switch v.Kind {
	case unstable.String:
		n.kind, n.text = isString, string(v.Data)
	case unstable.Bool:
		n.kind, n.yes = isBool, string(v.Data) == "true"
	case unstable.Integer:
		n.kind = isInteger
		var err error
		if n.number, err = strconv.ParseInt(strings.ReplaceAll(string(v.Data), "_", ""), 0, 64); err != nil {
			n.kind = isOther // the library judges
		}
	case unstable.Array:
		n.kind = isArray
		for it := v.Children(); it.Next(); {
			n.items = append(n.items, r.value(it.Node(), line))
		}
	case unstable.InlineTable:
		n = newTable(line)
		for it := v.Children(); it.Next(); {
			r.assign(n, it.Node())
		}
	default:
		n.kind = isOther
	}
	return n
}
