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

// KeepRestartKeys sets the keys that need a restart to the values of the running configuration. It returns the keys that it changed, in the order of
// the file.
func (c *Config) KeepRestartKeys(running *Config) (keys []string) {
	old := make(map[string]reflect.Value)
	walk(running, func(f field) { old[f.key] = f.value })
	walk(c, func(f field) {
		if f.tag.Get("restart") != "" && !reflect.DeepEqual(old[f.key].Interface(), f.value.Interface()) {
			keys = append(keys, f.key)
			f.value.Set(old[f.key])
		}
	})
	return keys
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

// unknownKey returns the message for an unknown key of a section.
func unknownKey(section reflect.Type, name string) string {
	top := reflect.TypeFor[Config]()
	if slices.Contains(keysOf(top), name) {
		return "unknown key here; it belongs at the top of the file, before the first [section]"
	}
	for i, other := range keysOf(top) {
		t := top.Field(i).Type
		if isList(t) {
			t = t.Elem()
		}
		if isSection(t) && slices.Contains(keysOf(t), name) {
			return "unknown key here; it belongs in " + asWritten(top, other)
		}
	}
	var known []string
	for _, key := range keysOf(section) {
		known = append(known, asWritten(section, key))
	}
	return "unknown key; there are " + strings.Join(known, ", ")
}

// asWritten returns a key in the form that it has in a file: "root", "[ftp]", "[[lock]]".
func asWritten(section reflect.Type, name string) string {
	switch t := section.Field(slices.Index(keysOf(section), name)).Type; {
	case isSection(t):
		return "[" + name + "]"
	case isList(t):
		return "[[" + name + "]]"
	}
	return name
}
