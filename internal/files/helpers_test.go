package files

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/afero"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// served is a tree and the directories of the host behind it.
type served struct {
	*Tree
	t     *testing.T
	root  string
	state string
}

func serve(t *testing.T, o Options) *served {
	t.Helper()
	base := t.TempDir()
	s := &served{t: t, root: filepath.Join(base, "root"), state: filepath.Join(base, "state")}
	s.open(o)
	return s
}

// open opens the tree, also a second time.
func (s *served) open(o Options) {
	s.t.Helper()
	o.State = s.state
	tree, err := Open(s.root, o)
	if err != nil {
		s.t.Fatal(err)
	}
	s.Tree = tree
	s.t.Cleanup(func() { tree.Close() })
}

// host returns the path on the host for an FTP path.
func (s *served) host(name string) string { return filepath.Join(s.root, name) }

func (s *served) put(name, content string) {
	s.t.Helper()
	if err := os.WriteFile(s.host(name), []byte(content), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

func (s *served) mkdir(name string) {
	s.t.Helper()
	if err := os.MkdirAll(s.host(name), 0o755); err != nil {
		s.t.Fatal(err)
	}
}

func (s *served) link(target, name string) {
	s.t.Helper()
	if err := os.Symlink(target, s.host(name)); err != nil {
		s.t.Fatal(err)
	}
}

// want fails the test unless the host has that content under the name.
func (s *served) want(name, content string) {
	s.t.Helper()
	got, err := os.ReadFile(s.host(name))
	if err != nil || string(got) != content {
		s.t.Errorf("%s holds %.60q, %v; want %.60q", name, got, err, content)
	}
}

// upload uploads and publishes content.
func (s *served) upload(name, content string, o UploadOptions) error {
	u, err := s.Upload(name, o)
	if err != nil {
		return err
	}
	if _, err := u.Write([]byte(content)); err != nil {
		return errors.Join(err, u.Discard())
	}
	return u.Publish()
}

// Publish calls Sync, Place and Finish as the driver does.
func (u *Upload) Publish() error {
	if err := u.Sync(); err != nil {
		return errors.Join(err, u.Discard())
	}
	if err := u.Place(); err != nil {
		return errors.Join(err, u.Discard())
	}
	return u.Finish()
}

func (s *served) mustUpload(name, content string, o UploadOptions) {
	s.t.Helper()
	if err := s.upload(name, content, o); err != nil {
		s.t.Fatal(err)
	}
}

// begun begins an upload and writes content to it.
func (s *served) begun(name, content string, o UploadOptions) *Upload {
	s.t.Helper()
	u, err := s.Upload(name, o)
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := u.Write([]byte(content)); err != nil {
		s.t.Fatal(err)
	}
	return u
}

// hostNames returns all paths below the root.
func (s *served) hostNames() []string {
	s.t.Helper()
	var names []string
	err := filepath.WalkDir(s.root, func(p string, _ fs.DirEntry, err error) error {
		if p != s.root {
			names = append(names, strings.TrimPrefix(p, s.root))
		}
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return names
}

// ReadDir describes the files in a directory, sorted.
func (s *served) ReadDir(name string) ([]fs.FileInfo, error) { return afero.ReadDir(s.Tree, name) }

func (s *served) temporaries() []string {
	return slices.DeleteFunc(s.hostNames(), func(n string) bool { return !strings.HasPrefix(filepath.Base(n), prefix) })
}

// records returns the ids of earlier starts that may have left temporary files.
func (s *served) records() []string {
	s.t.Helper()
	starts, err := s.earlierStarts()
	if err != nil {
		s.t.Fatal(err)
	}
	return slices.Collect(maps.Keys(starts))
}

// wantClean fails the test if a temporary file, a mark or an upload is left.
func (s *served) wantClean() {
	s.t.Helper()
	if left := append(s.temporaries(), s.records()...); len(left) > 0 {
		s.t.Errorf("left over: %q", left)
	}
	if n := s.unfinished.Load(); n != 0 {
		s.t.Errorf("%d temporary files are counted", n)
	}
}

// die ends an upload as a SIGKILL of the server does: it only closes the descriptors.
func die(u *Upload) {
	u.file.Close()
	u.dir.close()
}

// wantPath fails the test unless err contains the FTP path and no path of the host.
func (s *served) wantPath(err error, name string) {
	s.t.Helper()
	var p *fs.PathError
	if !errors.As(err, &p) || p.Path != name {
		s.t.Errorf("error %#v does not name %q", err, name)
	}
	if strings.Contains(err.Error(), s.root) || strings.Contains(err.Error(), s.state) {
		s.t.Errorf("error shows a path of the host: %v", err)
	}
}

func wantIs(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Errorf("error is %v, want one that matches %v", err, target)
		}
	}
}
