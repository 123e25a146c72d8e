package config

import (
	"fmt"
	"io/fs"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// decoder turns the tree of a file into a Config. What it cannot take it
// reports, leaving the default in place, and goes on.
type decoder struct {
	config *Config
	errs   Errors         // without file names
	lines  map[string]int // of every key that was set, as walk calls it
}

// root sets the whole configuration.
func (d *decoder) root(n *node) {
	d.table(n, "", reflect.ValueOf(d.config).Elem())
	if line, set := d.lines["account"]; set && len(d.config.Accounts) == 0 && !d.failed("account") {
		d.fail(line, "account", "no account: nobody could log in; leave account out for the built-in one")
	}
}

func (d *decoder) fail(line int, key, format string, args ...any) {
	d.errs = append(d.errs, Error{Line: line, Key: key, Message: fmt.Sprintf(format, args...)})
}

// table sets the fields of a section. prefix is "" or ends with a dot.
func (d *decoder) table(n *node, prefix string, into reflect.Value) {
	for _, name := range n.names {
		member := n.members[name]
		key := prefix + name
		if why := removed(into.Interface(), name); why != "" {
			d.fail(member.line, key, "%s", why)
			continue
		}
		target, ok := fieldOf(into, name)
		if !ok {
			d.fail(member.line, key, "%s", unknown(name, into.Type(), member))
			continue
		}
		d.lines[key] = member.line
		switch {
		case isSection(target.Type()):
			d.section(member, key, target)
		case isTables(target.Type()):
			d.tables(member, key, target)
		default:
			d.value(member, key, target)
		}
	}
}

func (d *decoder) section(n *node, key string, into reflect.Value) {
	if n.kind != isTable {
		d.fail(n.line, key, "write it as a section: [%s]", key)
		return
	}
	d.table(n, key+".", into)
}

// tables sets a list of which each element is a [[key]].
func (d *decoder) tables(n *node, key string, into reflect.Value) {
	if n.kind != isArray {
		d.fail(n.line, key, "there may be several: write [[%s]] with two brackets", key)
		return
	}
	elements := reflect.MakeSlice(into.Type(), 0, len(n.items))
	for i, item := range n.items {
		at := fmt.Sprintf("%s[%d]", key, i+1)
		d.lines[at] = item.line
		if item.kind != isTable {
			d.fail(item.line, at, "write [[%s]] with its keys below", key)
			item = newTable(item.line) // so that the next one keeps its number
		}
		element := reflect.New(into.Type().Elem()).Elem()
		switch e := element.Addr().Interface().(type) {
		case *Account:
			*e = DefaultAccount("", "")
		case *Rule:
			*e = DefaultRule("")
		}
		d.table(item, at+".", element)
		elements = reflect.Append(elements, element)
	}
	into.Set(elements)
}

// value sets one field that is no section.
func (d *decoder) value(n *node, key string, into reflect.Value) {
	if into.Kind() == reflect.Slice {
		d.list(n, key, into)
		return
	}
	if err := set(n, into); err != nil {
		d.fail(n.line, key, "%s", err)
	}
}

func (d *decoder) list(n *node, key string, into reflect.Value) {
	if n.kind != isArray {
		d.fail(n.line, key, "must be a list, such as %s, not %s", listExample(into.Type()), n.kind)
		return
	}
	elements := reflect.MakeSlice(into.Type(), 0, len(n.items))
	for i, item := range n.items {
		at := fmt.Sprintf("%s[%d]", key, i+1)
		d.lines[at] = item.line
		element := reflect.New(into.Type().Elem()).Elem()
		if err := set(item, element); err != nil {
			d.fail(item.line, at, "%s", err)
		}
		elements = reflect.Append(elements, element)
	}
	if len(n.items) == 0 {
		elements = reflect.Zero(into.Type()) // an empty list is the same as none
	}
	into.Set(elements)
}

func listExample(t reflect.Type) string {
	if t.Elem() == reflect.TypeFor[netip.Prefix]() {
		return `["10.0.0.0/8"]`
	}
	return `["one", "two"]`
}

// set gives a field the value of a node, or says what would be right.
func set(n *node, into reflect.Value) error {
	want := isString
	switch into.Interface().(type) {
	case bool:
		want = isBool
	case int:
		want = isInteger
	}
	if n.kind != want {
		return wrongKind(n, into)
	}
	var value any
	var err error
	switch into.Interface().(type) {
	case bool:
		value = n.yes
	case int:
		value = int(n.number)
		if int64(int(n.number)) != n.number {
			err = fmt.Errorf("the number is too large")
		}
	case string:
		value = n.text
	case time.Duration:
		value, err = parseDuration(n.text)
	case fs.FileMode:
		value, err = parseMode(n.text)
	case PortRange:
		value, err = parsePorts(n.text)
	case netip.Prefix:
		value, err = parseNetwork(n.text)
	}
	if err == nil {
		into.Set(reflect.ValueOf(value))
	}
	return err
}

// wrongKind does not show the value: it may be a password.
func wrongKind(n *node, into reflect.Value) error {
	switch into.Interface().(type) {
	case bool:
		return fmt.Errorf("must be true or false, without quotes")
	case int:
		return fmt.Errorf("must be a whole number, without quotes")
	case time.Duration:
		return fmt.Errorf("%s", durationForm)
	case fs.FileMode:
		return fmt.Errorf("%s", modeForm)
	}
	return fmt.Errorf("must be a string in quotes, not %s", n.kind)
}

const (
	durationForm = `must be a duration in quotes, such as "90s", "10m" or "1h30m", or "0"`
	modeForm     = `must be an octal mode in quotes, such as "0644"`
	portsForm    = `must be a range of ports, such as "30000-32767", or ""`
	networkForm  = `must be an address or a network, such as "10.0.0.5" or "10.0.0.0/8"`
)

func parseDuration(text string) (time.Duration, error) {
	t, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q: %s", text, durationForm)
	}
	return t, nil
}

func parseMode(text string) (fs.FileMode, error) {
	mode, err := strconv.ParseUint(text, 8, 32)
	if err != nil {
		return 0, fmt.Errorf("%q: %s", text, modeForm)
	}
	return fs.FileMode(mode), nil // whether it is one of permissions only, Validate says
}

func parsePorts(text string) (PortRange, error) {
	if text == "" {
		return PortRange{}, nil
	}
	low, high, isRange := strings.Cut(text, "-")
	if !isRange {
		high = low
	}
	first, err1 := strconv.ParseUint(strings.TrimSpace(low), 10, 16)
	last, err2 := strconv.ParseUint(strings.TrimSpace(high), 10, 16)
	if err1 != nil || err2 != nil || first == 0 || last == 0 {
		return PortRange{}, fmt.Errorf("%q: %s", text, portsForm)
	}
	return PortRange{uint16(first), uint16(last)}, nil
}

func parseNetwork(text string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" {
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q: %s", text, networkForm)
	}
	return p, nil
}

// fieldOf returns the field of a section with that key.
func fieldOf(section reflect.Value, name string) (reflect.Value, bool) {
	for i := range section.NumField() {
		if tag := section.Type().Field(i).Tag.Get("toml"); tag == name && tag != "-" {
			return section.Field(i), true
		}
	}
	return reflect.Value{}, false
}

// keysOf returns the keys of a section, in order.
func keysOf(section reflect.Type) []string {
	var names []string
	for i := range section.NumField() {
		if name := section.Field(i).Tag.Get("toml"); name != "-" {
			names = append(names, name)
		}
	}
	return names
}

// removed says of a key that earlier versions had what to do about it, or "".
func removed(section any, name string) string {
	switch section.(type) {
	case Rule:
		if name == "commit" {
			return `"commit" was removed: uploads are published when they end; delete this line`
		}
	case Files, Account:
		if name == "on_abort" {
			return `"on_abort" was removed: an upload that is broken off is discarded; delete this line`
		}
	}
	return ""
}

// unknown says that there is no such key, and which one may have been meant.
func unknown(name string, section reflect.Type, n *node) string {
	what := "unknown key"
	if n.kind == isTable || n.headers {
		what = "unknown section"
	}
	if place := placeOf(name, section); place != "" {
		return fmt.Sprintf("%s here; it belongs %s", what, place)
	}
	if meant := near(name, keysOf(section)); meant != "" {
		return fmt.Sprintf("%s; did you mean %s?", what, meant)
	}
	if place := placeOf(plain(name), section); place != "" {
		return fmt.Sprintf("%s; there is one %s", what, place)
	}
	return fmt.Sprintf("%s; there are %s", what, strings.Join(keysOf(section), ", "))
}

// placeOf says where the key of another section belongs, or "".
func placeOf(name string, not reflect.Type) string {
	root := reflect.TypeFor[Config]()
	if not != root && slices.Contains(keysOf(root), name) {
		if f, _ := fieldOf(reflect.New(root).Elem(), name); !isSection(f.Type()) && !isTables(f.Type()) {
			return "at the top of the file, before the first [section]"
		}
	}
	for i := range root.NumField() {
		t, tag := root.Field(i).Type, root.Field(i).Tag.Get("toml")
		switch {
		case t == not:
		case isSection(t) && slices.Contains(keysOf(t), name):
			return "in [" + tag + "]"
		case isTables(t) && t.Elem() != not && slices.Contains(keysOf(t.Elem()), name):
			return "in [[" + tag + "]]"
		}
	}
	return ""
}

// short returns a duration without the zeros that Duration.String ends with: "10m", not "10m0s".
func short(d time.Duration) string {
	switch {
	case d == 0:
		return "0"
	case d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d%time.Minute == 0:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return d.String()
}
