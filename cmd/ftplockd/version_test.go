package main

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestVersionLine(t *testing.T) {
	with := runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH
	released := &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}
	changed := &debug.BuildInfo{
		Main:     debug.Module{Version: "(devel)"},
		Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"}},
	}
	for want, info := range map[string]*debug.BuildInfo{
		"ftplockd (unknown) " + with:                       nil,
		"ftplockd v1.2.3 " + with:                          released,
		"ftplockd (devel) commit abc with changes " + with: changed,
	} {
		if got := versionLine(info); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
