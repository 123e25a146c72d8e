package config

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// table has the keys and values of a section of a file.
type table map[string]any

// has reports whether the file has a key.
func (t table) has(key string) bool {
	_, given := t[key]
	return given
}

// section returns the keys of a [name].
func (t table) section(name string) table {
	keys, _ := t[name].(map[string]any)
	return keys
}

// list returns the keys of each [[name]].
func (t table) list(name string) (all []table) {
	items, _ := t[name].([]any)
	for _, item := range items {
		keys, _ := item.(map[string]any)
		all = append(all, keys)
	}
	return all
}

// decoder sets the fields of a [Config] from a file, and collects all errors. The decoder of go-toml v2, in strict mode too, stops at the first value of
// a wrong type and then reports no unknown key. It accepts keys in another case, and [lock] for [[lock]]. The items of a list get no defaults, and its
// errors name Go types, without the number of the item.
type decoder struct {
	errs Errors
	keys []string // those with an error: their fields have the defaults
}

// decode reads a file. The configuration is nil if the file is not TOML. given has the keys of the file.
func decode(data []byte) (c *Config, given table, d decoder) {
	if err := toml.Unmarshal(data, (*map[string]any)(&given)); err != nil {
		d.errs = append(d.errs, syntaxError(err))
		return nil, nil, d
	}
	c = Default()
	d.section(reflect.ValueOf(c).Elem(), given, "", "")
	if c.Etcd.On() && !given.section("locks").has("directories") {
		c.Locks.Directories = false
	}
	return c, given, d
}

func syntaxError(err error) Error {
	e := Error{Message: strings.TrimPrefix(err.Error(), "toml: ")}
	var at *toml.DecodeError
	if errors.As(err, &at) {
		e.Line, _ = at.Position()
		e.Key = strings.Join(at.Key(), ".")
	}
	return e
}

func (d *decoder) fail(key, message string) {
	d.errs = append(d.errs, Error{Key: key, Message: message})
	d.keys = append(d.keys, key)
}

// section sets the fields of a section. key and kind are those of the section with a dot at the end, see [field].
func (d *decoder) section(to reflect.Value, given table, key, kind string) {
	known := keysOf(to.Type())
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if i := slices.Index(known, name); i >= 0 {
			d.value(to.Field(i), given[name], key+name, kind+name)
			continue
		}
		d.fail(key+name, unknownKey(to.Type(), name))
	}
}

// value sets one field.
func (d *decoder) value(to reflect.Value, given any, key, kind string) {
	text, isText := to.Addr().Interface().(interface{ UnmarshalText([]byte) error })
	switch v := given.(type) {
	case map[string]any:
		if isSection(to.Type()) {
			d.section(to, v, key+".", kind+".")
			return
		}
	case []any:
		if to.Kind() == reflect.Slice {
			d.list(to, v, key, kind)
			return
		}
	case string:
		if isText {
			if err := text.UnmarshalText([]byte(v)); err != nil {
				d.fail(key, err.Error())
			}
			return
		}
		if to.Kind() == reflect.String {
			to.SetString(v)
			return
		}
	case bool:
		if to.Kind() == reflect.Bool {
			to.SetBool(v)
			return
		}
		if to.Type() == reflect.TypeFor[Automatic]() {
			d.value(to, strconv.FormatBool(v), key, kind)
			return
		}
	case int64:
		if isText { // such as 0 for "0"
			d.value(to, strconv.FormatInt(v, 10), key, kind)
			return
		}
		if to.Kind() == reflect.Int && !to.OverflowInt(v) {
			to.SetInt(v)
			return
		}
	}
	d.fail(key, howToWrite(to.Type(), kind)+bracketHints[kind])
}

// list sets a list of sections, each with its defaults, or of values. An empty list has no items.
func (d *decoder) list(to reflect.Value, given []any, key, kind string) {
	to.SetZero()
	for i, v := range given {
		item := reflect.New(to.Type().Elem())
		switch item := item.Interface().(type) {
		case *Account:
			*item = DefaultAccount("", "")
		case *Rule:
			*item = DefaultRule("")
		case *Hook:
			*item = DefaultHook()
		}
		at := fmt.Sprintf("%s[%d]", key, i+1)
		if _, ok := v.(map[string]any); isList(to.Type()) && !ok {
			d.fail(at, howToWrite(to.Type(), kind))
		} else {
			d.value(item.Elem(), v, at, kind)
		}
		if r, ok := item.Interface().(*Rule); ok && r.Automatic.On() {
			keys, _ := v.(map[string]any)
			r.automaticDefaults(keys)
		}
		to.Set(reflect.Append(to, item.Elem()))
	}
}

// failed reports whether a key, or its section or list, has an error. Then its value is a default.
func (d *decoder) failed(key string) bool {
	return slices.ContainsFunc(d.keys, func(wrong string) bool {
		rest, within := strings.CutPrefix(key, wrong)
		return within && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

// bracketHints has hints for sections with similar names in wrong brackets.
var bracketHints = map[string]string{"lock": "; the settings of all locks are [locks]", "locks": "; a rule for names is [[lock]]"}

// howToWrite returns how to write a value of a type. It does not show the value, which may be a password.
func howToWrite(t reflect.Type, name string) string {
	switch {
	case isSection(t):
		return fmt.Sprintf("write it as a section: [%s]", name)
	case isList(t):
		return fmt.Sprintf("there may be several: write [[%s]], with two brackets, and its keys below", name)
	case t.Kind() == reflect.Slice:
		return `must be a list of strings, such as ["one", "two"]`
	case t.Kind() == reflect.Bool:
		return "must be true or false, without quotes"
	case t.Kind() == reflect.Int:
		return "must be a whole number, without quotes"
	}
	return "must be a string in quotes"
}

// lines has the line of each key of a file, by key, such as "lock[2].match". Keys in inline tables have none.
type lines map[string]int

// findLines reads the keys of a file up to its first syntax error.
func findLines(data []byte) lines {
	l := make(lines)
	counts := make(map[string]int) // of the [[name]] so far
	var p unstable.Parser
	p.Reset(data)
	section := ""
	for p.NextExpression() {
		e := p.Expression()
		if e.Kind == unstable.KeyValue {
			l.key(&p, section, e, counts, false)
			continue
		}
		section = l.key(&p, "", e, counts, e.Kind == unstable.ArrayTable)
	}
	return l
}

// key returns the key of an expression, and adds it and the sections that it is the first to name. next: it begins another [[section]].
func (l lines) key(p *unstable.Parser, section string, e *unstable.Node, counts map[string]int, next bool) (key string) {
	key = section
	for names := e.Key(); names.Next(); {
		if key != "" {
			key += "."
		}
		key += string(names.Node().Data)
		line := p.Shape(names.Node().Raw).Start.Line
		l.first(key, line)
		if next && names.IsLast() {
			counts[key]++
		}
		if n := counts[key]; n > 0 {
			key = fmt.Sprintf("%s[%d]", key, n)
			l.first(key, line)
		}
	}
	return key
}

func (l lines) first(key string, line int) {
	if _, known := l[key]; !known {
		l[key] = line
	}
}

// locate sets the file of each error, and the line of its key, or else of the section or list of the key. It returns the errors in the order of the
// lines.
func (l lines) locate(errs Errors, filename string) Errors {
	for i := range errs {
		errs[i].File = filename
		for key := errs[i].Key; errs[i].Line == 0 && key != ""; key = parent(key) {
			errs[i].Line = l[key]
		}
	}
	slices.SortStableFunc(errs, func(a, b Error) int { return a.Line - b.Line })
	return errs
}

// parent returns the section or list of a key: "a[1]" for "a[1].b", "a" for "a[1]".
func parent(key string) string {
	return key[:max(strings.LastIndexAny(key, ".["), 0)]
}
