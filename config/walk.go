package config

import (
	"fmt"
	"reflect"
)

// field is one key of a Config: where it is, what is said about it, what it is set to.
type field struct {
	key   string            // "listen", "ftp.active", "lock[1].max_age"; [[…]] counted from 1
	kind  string            // the same without the count: "lock.max_age"
	tag   reflect.StructTag // enum, restart
	value reflect.Value
}

// walk calls visit for every key of the configuration, in the order of the file.
func walk(c *Config, visit func(field)) {
	walkStruct(reflect.ValueOf(c).Elem(), "", "", visit)
}

func walkStruct(v reflect.Value, key, kind string, visit func(field)) {
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		name := tag.Get("toml")
		if name == "-" {
			continue
		}
		at := field{key + name, kind + name, tag, v.Field(i)}
		switch {
		case isSection(at.value.Type()):
			walkStruct(at.value, at.key+".", at.kind+".", visit)
		case isTables(at.value.Type()):
			for j := range at.value.Len() {
				walkStruct(at.value.Index(j), fmt.Sprintf("%s[%d].", at.key, j+1), at.kind+".", visit)
			}
		default:
			visit(at)
		}
	}
}

// isSection reports whether a field of that type is a [section] of its own.
func isSection(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && t.NumField() > 0 && t.Field(0).Tag.Get("toml") != ""
}

// isTables reports whether a field of that type is written as repeated [[sections]].
func isTables(t reflect.Type) bool { return t.Kind() == reflect.Slice && isSection(t.Elem()) }
