package integration

import (
	"slices"
	"strings"
	"testing"
)

const module = "github.com/ftplockd/ftplockd/"

// allowed has the packages of the project that each package may import outside of its tests. An entry that ends in a slash is for all packages
// below it that have none of their own. Only internal/server and the commands name concrete logs.
var allowed = map[string][]string{
	"internal/lock":          {},
	"config":                 {},
	"internal/control":       {},
	"internal/files":         {},
	"internal/lock/":         {"internal/lock"}, // every store
	"internal/lock/locktest": {"internal/lock"},
	"internal/planted":       {},
	"internal/lock/journal":  {"internal/lock", "internal/lock/record"},
	"internal/lock/etcd":     {"internal/lock", "internal/lock/record"},
	"internal/powerloss":     {},
	"internal/job":           {"internal/lock"},
	"reaper":                 {"internal/lock"},
	"driver":                 {"config", "internal/lock", "internal/files", "internal/control", "internal/event", "internal/guessing", "internal/job", "internal/status"},
	"locksmith":              {},
	"cmd/netlock":            {"locksmith"},
	"internal/event":         {"internal/lock"},
	"internal/guessing":      {"config"},
	"internal/status":        {"internal/job", "internal/lock"},
	"internal/hook":          {"internal/event", "internal/status"},
	"internal/metrics":       {"internal/event"},
	"internal/web":           {"config", "internal/event", "internal/status"},
	"internal/server":        {"internal/event", "internal/hook", "internal/job", "internal/metrics", "internal/status", "internal/web", "config", "internal/control", "driver", "internal/files", "internal/guessing", "internal/lock", "internal/lock/journal", "internal/lock/hostdir", "internal/lock/etcd", "reaper"},
	"cmd/ftplockd":           {"config", "internal/files", "internal/lock", "internal/lock/etcd", "internal/lock/journal", "internal/server", "internal/status"},
	"integration":            {},
	"integration/":           {"integration/peers"},
	"integration/guards":     {"integration/harness"},
	"integration/harness":    {"internal/lock", "internal/lock/locktest"},
}

// rule returns the entry of a package: its own, or that of a parent with a slash.
func rule(name string) ([]string, bool) {
	if r, ok := allowed[name]; ok {
		return r, true
	}
	for i := strings.LastIndexByte(name, '/'); i >= 0; i = strings.LastIndexByte(name[:i], '/') {
		if r, ok := allowed[name[:i+1]]; ok {
			return r, true
		}
	}
	return nil, false
}

func TestPackagesImportOnlyWhatTheDesignAllows(t *testing.T) {
	t.Parallel()
	cmd := command(t, "go", "list", "-f", "{{.ImportPath}}{{range .Imports}} {{.}}{{end}}", "./...")
	cmd.Dir = ".."
	cmd.Env = nil // with the home directory that Go's caches are in
	r := finish(t, cmd)
	if r.status != 0 {
		t.Fatal(r.out)
	}
	seen := 0
	for line := range strings.Lines(r.out) {
		imports := strings.Fields(line)
		name := strings.TrimPrefix(imports[0], module)
		may, ok := rule(name)
		if !ok {
			t.Errorf("%s: add what it may import to this test", name)
		}
		for _, path := range imports[1:] {
			if imported, own := strings.CutPrefix(path, module); own && !slices.Contains(may, imported) {
				t.Errorf("%s must not import %s", name, imported)
			}
		}
		seen++
	}
	if seen < 10 {
		t.Errorf("go list prints %d packages", seen)
	}
}
