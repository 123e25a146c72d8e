package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// field is one key of a Config.
type field struct {
	key   string            // "listen", "ftp.active", "lock[1].max_age"; [[lock]] and [[account]] are counted from 1
	kind  string            // the same without the count: "lock.max_age"
	tag   reflect.StructTag // enum, restart
	value reflect.Value
}

// walk calls visit for every key of the configuration, in the order of the file.
func walk(c *Config, visit func(field)) {
	walkSection(reflect.ValueOf(c).Elem(), "", "", visit)
}

func walkSection(v reflect.Value, key, kind string, visit func(field)) {
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		name := tag.Get("toml")
		if name == "-" {
			continue
		}
		f := field{key + name, kind + name, tag, v.Field(i)}
		switch {
		case isSection(f.value.Type()):
			walkSection(f.value, f.key+".", f.kind+".", visit)
		case isList(f.value.Type()):
			for j := range f.value.Len() {
				walkSection(f.value.Index(j), fmt.Sprintf("%s[%d].", f.key, j+1), f.kind+".", visit)
			}
		default:
			visit(f)
		}
	}
}

// isSection reports whether a field of that type is a [section] of the file.
func isSection(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && t.NumField() > 0 && t.Field(0).Tag.Get("toml") != ""
}

// isList reports whether a field of that type is written as repeated [[sections]].
func isList(t reflect.Type) bool { return t.Kind() == reflect.Slice && isSection(t.Elem()) }

// keysOf returns the keys of a section, in order.
func keysOf(section reflect.Type) (names []string) {
	for i := range section.NumField() {
		if name := section.Field(i).Tag.Get("toml"); name != "-" {
			names = append(names, name)
		}
	}
	return names
}

// removed has the keys of earlier versions, and a message for each.
var removed = map[string]string{
	"lock.commit":          `"commit" was removed: uploads are published when they end; delete this line`,
	"lock.queue":           `"queue" was removed: with wait = "90s" clients wait in a queue and get the lock in order; delete this line`,
	"lock.queue_hold":      `"queue_hold" was removed: with wait = "90s" clients wait in a queue and get the lock in order; delete this line`,
	"lock.reentrant":       `"reentrant" was removed: a program counts how often it took its lock; delete this line`,
	"files.on_abort":       `"on_abort" was removed: an upload that is broken off is discarded; delete this line`,
	"files.upload_max_age": `"upload_max_age" was removed: data_timeout ends an upload that makes no progress, and a start removes what an earlier one left; delete this line`,
	"account.on_abort":     `"on_abort" was removed: an upload that is broken off is discarded; delete this line`,
}

// unknown returns the message for an unknown key of a section, and the key that its author probably meant, or "". kind is that of the section,
// see [field].
func unknown(section reflect.Type, kind, name string) (message, meant string) {
	if why := removed[kind+name]; why != "" {
		return why, ""
	}
	if meant = near(name, keysOf(section)); strings.EqualFold(name, meant) && meant != "" {
		return fmt.Sprintf("unknown key; write %s, in lower case", written(section, meant)), meant
	} else if meant != "" {
		return fmt.Sprintf("unknown key; did you mean %s?", written(section, meant)), meant
	}
	top := reflect.TypeFor[Config]()
	if slices.Contains(keysOf(top), name) {
		return "unknown key here; it belongs at the top of the file, before the first [section]", ""
	}
	for i, other := range keysOf(top) {
		t := top.Field(i).Type
		if isList(t) {
			t = t.Elem()
		}
		if isSection(t) && slices.Contains(keysOf(t), name) {
			return "unknown key here; it belongs in " + written(top, other), ""
		}
	}
	return "unknown key; there are " + strings.Join(keysOf(section), ", "), ""
}

// written returns a key in the form that it has in a file: "root", "[ftp]", "[[lock]]".
func written(section reflect.Type, name string) string {
	switch t := section.Field(slices.Index(keysOf(section), name)).Type; {
	case isSection(t):
		return "[" + name + "]"
	case isList(t):
		return "[[" + name + "]]"
	}
	return name
}
