package etcd

import (
	"encoding/json"
	"testing"
)

func FuzzText(f *testing.F) {
	for _, seed := range []string{"", "/a_lock", "%41", "%", "\xff\x00\"\\", "é<&>"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, want string) {
		value := encode(lineValue{Name: text(want), Note: text(want)})
		var got lineValue
		if err := json.Unmarshal([]byte(value), &got); err != nil || string(got.Name) != want || string(got.Note) != want {
			t.Errorf("%q comes back as %q and %q from %s: %v", want, got.Name, got.Note, value, err)
		}
	})
}

func TestVersionsAreCompared(t *testing.T) {
	for version, want := range map[string]bool{
		"3.6.5": false, "3.6.4": true, "3.10.0": false, "3.5.21": true, "4.0": false, "3.6": false, "": true, "3.6.x": true,
	} {
		if got := older(version, minVersion); got != want {
			t.Errorf("%q is older than %s: %v", version, minVersion, got)
		}
	}
}
