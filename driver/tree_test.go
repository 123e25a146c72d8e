package driver

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/spf13/afero"

	"github.com/ftplockd/ftplockd/internal/files"
	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

// made calls New with that tree.
func made(t *testing.T, tree afero.Fs) error {
	t.Helper()
	clock := locktest.NewFakeClock()
	rules, err := lock.NewRules(nil)
	if err != nil {
		t.Fatal(err)
	}
	table, err := lock.NewTable(t.Context(), lock.Options{Store: locktest.NewMemory(), Clock: clock, Rules: rules})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Options{Tree: tree, Table: table, Clock: clock})
	if err == nil {
		t.Cleanup(func() { s.Close() })
	}
	return err
}

// fully is a file system with all add-ons, the methods of which are never called.
type fully struct {
	afero.Fs
	namer
	remover
	keeper
	stager
	asider
	measurer
}

func TestATreeWantsAllAddOns(t *testing.T) {
	plain := afero.NewMemMapFs()
	for _, tt := range []struct {
		missing string
		tree    afero.Fs
	}{
		{"", fully{Fs: plain}},
		{"namer", plain},
		{"namer", afero.NewReadOnlyFs(plain)},
		{"namer", struct {
			afero.Fs
			remover
			keeper
			stager
			asider
			measurer
		}{Fs: plain}},
		{"remover", struct {
			afero.Fs
			namer
			keeper
			stager
			asider
			measurer
		}{Fs: plain}},
		{"keeper", struct {
			afero.Fs
			namer
			remover
			stager
			asider
			measurer
		}{Fs: plain}},
		{"stager", struct {
			afero.Fs
			namer
			remover
			keeper
			asider
			measurer
		}{Fs: plain}},
		{"asider", struct {
			afero.Fs
			namer
			remover
			keeper
			stager
			measurer
		}{Fs: plain}},
		{"measurer", struct {
			afero.Fs
			namer
			remover
			keeper
			stager
			asider
		}{Fs: plain}},
	} {
		err := made(t, tt.tree)
		switch {
		case tt.missing == "":
			if err != nil {
				t.Errorf("nothing is missing: %v", err)
			}
		case err == nil || !strings.Contains(err.Error(), "driver."+tt.missing):
			t.Errorf("without %s: %v", tt.missing, err)
		}
	}
	if err := made(t, plain); err == nil || !strings.Contains(err.Error(), "*afero.MemMapFs") {
		t.Errorf("the file system is not named: %v", err)
	}
}

func TestPackageFilesIsATree(t *testing.T) {
	tree, err := files.Open(t.TempDir(), files.Options{State: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	if err := made(t, tree); err != nil {
		t.Error(err)
	}
}

// Nobody notices a missing method at the first command that wants it.
func TestTheAddOnsAreThoseOfTheFileSystem(t *testing.T) {
	tree, err := files.Open(t.TempDir(), files.Options{State: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	e, err := extend(tree)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.MkdirLasting("/d", 0o755); err != nil {
		t.Error(err)
	}
	if name, err := e.Resolve("/d/../d/x"); name != "/d/x" || err != nil {
		t.Errorf("%q, %v", name, err)
	}
	if info, err := e.Lstat("/d"); err != nil || info.Mode()&fs.ModeDir == 0 {
		t.Errorf("%v, %v", info, err)
	}
	if err := e.RemoveFile("/d"); err == nil {
		t.Error("a directory was removed as a file")
	}
	if err := e.RemoveDir("/d"); err != nil {
		t.Error(err)
	}
	if _, err := e.Space("/"); err != nil {
		t.Error(err)
	}
}
