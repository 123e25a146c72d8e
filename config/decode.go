package config

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// decode reads a file. go-toml stops at the first value that it cannot take, and tells of all unknown keys at the end. The
// configuration is nil if the file was not read to its end. given is what is in the file.
func decode(data []byte, at *lines) (c *Config, given table, errs Errors) {
	if err := toml.Unmarshal(data, (*map[string]any)(&given)); err != nil {
		return nil, nil, Errors{at.error(err)}
	}
	for _, name := range []string{"account", "lock", "hook"} {
		if _, single := given[name].(map[string]any); single { // go-toml would take it for a list of one
			return nil, nil, Errors{{Key: name, Message: form(reflect.TypeFor[[]Rule](), name)}}
		}
	}
	c = Default()
	c.Rules = nil
	err := toml.NewDecoder(bytes.NewReader(data)).DisallowUnknownFields().Decode(c)
	var unknown *toml.StrictMissingError
	if errors.As(err, &unknown) {
		for i := range unknown.Errors {
			errs = append(errs, at.unknown(&unknown.Errors[i]))
		}
	} else if err != nil {
		e := at.error(err)
		if e.Line == 0 {
			e.Line = lineOf(data)
			e.Key = at.keyIn(e.Line)
		}
		return nil, nil, Errors{e}
	}
	c.complete(given)
	return c, given, errs
}

// lineOf finds the first line with an error that go-toml gives no line for: it does not if an UnmarshalText refuses a number.
func lineOf(data []byte) int {
	var head []byte
	line := 0
	for text := range bytes.Lines(data) {
		head = append(head, text...)
		line++
		var known *toml.DecodeError
		if err := toml.Unmarshal(head, Default()); err != nil && !errors.As(err, &known) {
			break
		}
	}
	return line
}

// complete sets what the file does not give.
func (c *Config) complete(given table) {
	complete(c.Accounts, DefaultAccount("", ""), given.list("account"))
	complete(c.Rules, DefaultRule(""), given.list("lock"))
	complete(c.Hooks, DefaultHook(), given.list("hook"))
	if !given.has("lock") {
		c.Rules = Default().Rules
	}
	if c.Etcd.On() && !given.section("locks").has("directories") {
		c.Locks.Directories = false
	}
	walk(c, func(f field) { // an empty list is the same as none
		if f.value.Kind() == reflect.Slice && f.value.Len() == 0 {
			f.value.SetZero()
		}
	})
}

// table is the keys that a file gives in a section.
type table map[string]any

// has reports whether a key is given. As in go-toml, the case of its letters does not matter.
func (t table) has(key string) bool {
	for name := range t {
		if strings.EqualFold(name, key) {
			return true
		}
	}
	return false
}

// section returns the keys of a [name].
func (t table) section(name string) table {
	for key, value := range t {
		if one, ok := value.(map[string]any); ok && strings.EqualFold(key, name) {
			return one
		}
	}
	return nil
}

// list returns the sections of a [[name]].
func (t table) list(name string) (all []table) {
	items, _ := t[name].([]any)
	for _, item := range items {
		one, _ := item.(map[string]any)
		all = append(all, one)
	}
	return all
}

// complete sets the keys that each element does not give to those of the defaults.
func complete[T any](elements []T, defaults T, given []table) {
	for i := range elements {
		to, from := reflect.ValueOf(&elements[i]).Elem(), reflect.ValueOf(defaults)
		for j, key := range keysOf(to.Type()) {
			if i < len(given) && !given[i].has(key) {
				to.Field(j).Set(from.Field(j))
			}
		}
	}
}

// lines says where the keys of a file stand.
type lines struct {
	of     map[string]int   // by key, such as "lock[2].match"
	starts map[string][]int // where each [[lock]] and each [[account]] begins
}

// findLines has go-toml report all keys of a file as unknown: so it tells their lines.
func findLines(data []byte) *lines {
	l := &lines{make(map[string]int), make(map[string][]int)}
	// First the keys at the top, and the sections; then what is in the sections.
	for _, e := range unknownKeys(data, &struct{}{}) {
		line, _ := e.Position()
		if name := strings.Join(e.Key(), "."); name == "account" || name == "lock" {
			l.starts[name] = append(l.starts[name], line)
		}
		l.add(&e)
	}
	for _, e := range unknownKeys(data, &struct {
		FTP      struct{}   `toml:"ftp"`
		TLS      struct{}   `toml:"tls"`
		Files    struct{}   `toml:"files"`
		Locks    struct{}   `toml:"locks"`
		Etcd     struct{}   `toml:"etcd"`
		Accounts []struct{} `toml:"account"`
		Rules    []struct{} `toml:"lock"`
	}{}) {
		l.add(&e)
	}
	return l
}

func unknownKeys(data []byte, into any) []toml.DecodeError {
	var all *toml.StrictMissingError
	if err := toml.NewDecoder(bytes.NewReader(data)).DisallowUnknownFields().Decode(into); errors.As(err, &all) {
		return all.Errors
	}
	return nil
}

func (l *lines) add(e *toml.DecodeError) {
	name := strings.ToLower(l.name(e))
	for _, name := range []string{name, parent(name)} {
		if _, known := l.of[name]; !known {
			l.of[name], _ = e.Position()
		}
	}
}

// keyIn returns the key that stands in a line; "" if there is none.
func (l *lines) keyIn(line int) (key string) {
	for k, at := range l.of {
		if at == line && len(k) > len(key) {
			key = k
		}
	}
	return key
}

// name returns the key of an error with the number of its [[section]].
func (l *lines) name(e *toml.DecodeError) string {
	key := e.Key()
	if len(key) == 0 {
		return ""
	}
	line, _ := e.Position()
	number := 0
	for _, start := range l.starts[key[0]] {
		if start <= line {
			number++
		}
	}
	name := strings.Join(key, ".")
	if number == 0 {
		return name
	}
	return fmt.Sprintf("%s[%d]%s", key[0], number, name[len(key[0]):])
}

// unknown says that there is no such key.
func (l *lines) unknown(e *toml.DecodeError) Error {
	line, _ := e.Position()
	return Error{Line: line, Key: l.name(e), Message: unknown(e.Key())}
}

// error turns what go-toml says into an Error.
func (l *lines) error(err error) Error {
	var e *toml.DecodeError
	if !errors.As(err, &e) {
		return Error{Message: strings.TrimPrefix(err.Error(), "toml: ")}
	}
	line, _ := e.Position()
	message := strings.TrimPrefix(e.Error(), "toml: ")
	if _, _, t := find(e.Key()); t != nil && strings.HasPrefix(message, "cannot decode TOML ") {
		message = form(t, e.Key()[len(e.Key())-1])
	}
	return Error{Line: line, Key: l.name(e), Message: message}
}

// form says how a value of a type is written. It does not show the value: that may be a password.
func form(t reflect.Type, name string) string {
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

// place gives each error the file and the line of its key, or of what the key is part of.
func (l *lines) place(errs Errors, filename string) Errors {
	for i := range errs {
		errs[i].File = filename
		for key := errs[i].Key; errs[i].Line == 0 && key != ""; key = parent(key) {
			errs[i].Line = l.of[key]
		}
	}
	return errs.sorted()
}

// parent returns what a key is part of: "a[1].b" is in "a[1]", that in "a".
func parent(key string) string {
	return key[:max(strings.LastIndexAny(key, ".["), 0)]
}
