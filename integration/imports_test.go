package integration

import (
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/ftplockd/ftplockd"

// goPackage is what go list says of a package.
type goPackage struct {
	ImportPath   string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

// own returns which packages of the project are among the imports, without the module's path.
func own(imports []string) []string {
	var all []string
	for _, p := range imports {
		if name, ok := strings.CutPrefix(p, module+"/"); ok && !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// allowed says which packages of the project each may import. An entry that ends in a slash is for all packages
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

// allowedInTests is what their tests may import beside that.
var allowedInTests = map[string][]string{
	"internal/lock":           {"internal/lock", "internal/lock/locktest", "internal/planted"},
	"internal/lock/":          {"internal/lock/locktest", "internal/files", "internal/powerloss"},
	"internal/control":        {"integration/harness"},
	"internal/files":          {"internal/powerloss"},
	"internal/job":            {"internal/lock", "internal/lock/locktest", "internal/planted"},
	"internal/hook":           {"internal/lock"},
	"internal/lock/hostdir":   {"internal/files", "internal/lock/locktest", "internal/lock/journal", "internal/powerloss"},
	"internal/lock/etcd":      {"internal/lock/locktest", "integration/etcdtest"},
	"integration/deployments": {"integration/harness"},
	"integration/clients":     {"integration/harness", "integration/peers"},
	"integration/cluster":     {"config", "internal/lock", "internal/lock/locktest", "internal/lock/etcd", "integration/etcdtest", "integration/harness"},
	"reaper":                  {"internal/lock/locktest"},
	"driver":                  {"integration/harness", "internal/lock/locktest", "internal/lock/journal", "internal/lock/hostdir", "reaper"},
	"integration":             {"internal/lock", "internal/lock/locktest", "locksmith", "integration/peers", "integration/harness"},
	"locksmith":               {},
	"cmd/netlock":             {},
	"internal/server":         {"internal/lock/locktest", "integration/harness"},
	"cmd/ftplockd":            {"integration/etcdtest", "integration/harness"},
}

// rule is the entry for a package: its own, or that of a parent with a slash.
func rule(rules map[string][]string, name string) ([]string, bool) {
	if r, ok := rules[name]; ok {
		return r, true
	}
	for i := strings.LastIndexByte(name, '/'); i >= 0; i = strings.LastIndexByte(name[:i], '/') {
		if r, ok := rules[name[:i+1]]; ok {
			return r, true
		}
	}
	return nil, false
}

func TestPackagesImportOnlyWhatTheDesignAllows(t *testing.T) {
	t.Parallel()
	if err := sources(); err != nil {
		t.Fatal(err)
	}
	cmd := command(t, "go", "list", "-json=ImportPath,Imports,TestImports,XTestImports", "./...")
	cmd.Dir = ".."
	cmd.Env = nil // with the home directory that Go's caches are in
	var listed, complaints strings.Builder
	cmd.Stdout, cmd.Stderr = &listed, &complaints
	if r := finish(t, cmd); r.status != 0 {
		t.Fatal(complaints.String())
	}
	seen := 0
	for d := json.NewDecoder(strings.NewReader(listed.String())); ; seen++ {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		checkImports(t, name, p)
	}
	if seen < 10 {
		t.Errorf("go list knows %d packages", seen)
	}
}

func checkImports(t *testing.T, name string, p goPackage) {
	t.Helper()
	may, ok := rule(allowed, name)
	if !ok {
		t.Errorf("%s: say in this test what it may import", name)
	}
	for _, imported := range own(p.Imports) {
		if !slices.Contains(may, imported) {
			t.Errorf("%s must not import %s", name, imported)
		}
	}
	inTests, _ := rule(allowedInTests, name)
	for _, imported := range own(slices.Concat(p.TestImports, p.XTestImports)) {
		if imported != name && !slices.Contains(may, imported) && !slices.Contains(inTests, imported) {
			t.Errorf("the tests of %s must not import %s", name, imported)
		}
	}
}
