package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestResolve(t *testing.T) {
	s := serve(t, Options{})
	s.mkdir("/locks/grp")
	s.mkdir("/data/a/b")
	s.put("/file", "")
	s.link("locks", "/l")
	s.link("../data/a", "/locks/in")
	s.link("b/..", "/data/a/dots")
	s.link("l/in", "/chain")
	s.link(".", "/self")
	s.link("loop2", "/loop1")
	s.link("loop1", "/loop2")
	s.link("..", "/out")
	s.link("../../..", "/data/a/out")
	s.link("/etc", "/abs")
	s.link(s.root+"/locks", "/absin")
	s.link("nowhere", "/dangling")
	for _, c := range []struct {
		name, want string
		err        error
	}{
		{name: "/", want: "/"},
		{name: "", want: "/"},
		{name: "/phone_lock", want: "/phone_lock"},
		{name: "phone_lock", want: "/phone_lock"},
		{name: "//locks///x/", want: "/locks/x"},
		{name: "/locks/./x/../y", want: "/locks/y"},
		{name: "/../../x", want: "/x"},
		{name: "/locks/x", want: "/locks/x"},
		{name: "/l/x", want: "/locks/x"},
		{name: "/l", want: "/l"}, // the last element is not followed
		{name: "/l/in", want: "/locks/in"},
		{name: "/l/in/x", want: "/data/a/x"},
		{name: "/chain/x", want: "/data/a/x"},
		{name: "/chain/b/x", want: "/data/a/b/x"},
		{name: "/data/a/dots/x", want: "/data/a/x"},
		{name: "/self/self/locks/x", want: "/locks/x"},
		{name: "/none/x", want: "/none/x"},
		{name: "/l/none/x/y", want: "/locks/none/x/y"},
		{name: "/dangling/x", want: "/nowhere/x"},
		{name: "/file/x", want: "/file/x"},
		{name: "/locks/\xff\xfe", want: "/locks/\xff\xfe"},
		{name: "/l/\xff", want: "/locks/\xff"},
		{name: "/loop1/x", err: unix.ELOOP},
		{name: "/out/x", err: ErrEscapes},
		{name: "/data/a/out/x", err: ErrEscapes},
		{name: "/abs/x", err: ErrEscapes},
		{name: "/absin/x", err: ErrEscapes},
		{name: "/a\x00b", err: ErrName},
		{name: "/" + strings.Repeat("n", 300) + "/x", err: ErrName},
	} {
		got, err := s.Resolve(c.name)
		if c.err != nil {
			wantIs(t, err, c.err)
			s.wantPath(err, filepath.Clean(c.name))
			continue
		}
		if err != nil || got != c.want {
			t.Errorf("Resolve(%q) is %q, %v; want %q", c.name, got, err, c.want)
		}
	}
}

// A name leads through 8 links and no more, whether they follow each other or lie in one path.
func TestNotMoreLinksAreFollowedThanAgreed(t *testing.T) {
	s := serve(t, Options{})
	s.mkdir("/l0")
	s.put("/l0/f", "content")
	for i := range maxLinks + 1 {
		s.link(fmt.Sprint("l", i), fmt.Sprint("/l", i+1))
	}
	for links, want := range map[int]error{1: nil, maxLinks: nil, maxLinks + 1: unix.ELOOP} {
		name := fmt.Sprintf("/l%d/f", links)
		_, err := s.Stat(name)
		resolved, errResolve := s.Resolve(name)
		if !errors.Is(err, want) || !errors.Is(errResolve, want) || want == nil && (err != nil || resolved != "/l0/f") {
			t.Errorf("%d links: %v; %q, %v", links, err, resolved, errResolve)
		}
	}
}

// everyOperation is what a client can do with a name.
func everyOperation(s *served, name string) map[string]error {
	errs := make(map[string]error)
	add := func(op string, err error) { errs[op] = err }
	_, err := s.Stat(name)
	add("stat", err)
	_, err = s.Lstat(name)
	add("lstat", err)
	_, err = s.ReadDir(name)
	add("readdir", err)
	_, err = s.Open(name)
	add("open", err)
	_, err = s.Space(name)
	add("space", err)
	add("chmod", s.Chmod(name, 0o777))
	add("chtimes", s.Chtimes(name, unixEpoch, unixEpoch))
	add("mkdir", s.Mkdir(name, 0o755))
	add("unlink", s.RemoveFile(name))
	add("rmdir", s.RemoveDir(name))
	add("remove", s.Remove(name))
	add("upload", s.upload(name, "x", UploadOptions{}))
	add("append", s.upload(name, "x", UploadOptions{Append: true}))
	add("rename from", s.Rename(name, "/renamed"))
	add("rename to", s.Rename("/mine", name))
	return errs
}

func TestLinksNeverLeadOut(t *testing.T) {
	s := serve(t, Options{})
	outside := filepath.Join(filepath.Dir(s.root), "outside")
	if err := os.MkdirAll(filepath.Join(outside, "dir"), 0o755); err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(outside, "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(secret)
	if err != nil {
		t.Fatal(err)
	}
	s.put("/mine", "mine")
	for _, target := range []string{outside, "../outside", "../../" + filepath.Base(filepath.Dir(s.root)) + "/outside", "/proc/self/cwd/../.."} {
		s.link(target, "/way")
		for _, name := range []string{"/way/secret", "/way/new", "/way/dir"} {
			for op, err := range everyOperation(s, name) {
				if !errors.Is(err, ErrEscapes) || !errors.Is(err, fs.ErrPermission) {
					t.Errorf("%s of %s over a link to %s: %v", op, name, target, err)
					continue
				}
			}
		}
		if err := os.Remove(s.host("/way")); err != nil {
			t.Fatal(err)
		}
	}
	// A link as the last element: what follows it is refused, the others work on the link itself.
	s.link("../outside/secret", "/way")
	for _, op := range []string{"stat", "readdir", "open", "space", "chmod", "chtimes", "append"} {
		if err := everyOperationOn(s, "/way", op); !errors.Is(err, ErrEscapes) {
			t.Errorf("%s of a link out of the tree: %v", op, err)
		}
	}
	s.mustUpload("/way", "new", UploadOptions{})
	s.want("/way", "new")
	after, err := os.Stat(secret)
	if err != nil {
		t.Fatal(err)
	}
	if content, _ := os.ReadFile(secret); string(content) != "secret" || after.Mode() != before.Mode() || after.ModTime() != before.ModTime() {
		t.Errorf("what is outside has changed: %q, %v, %v", content, after.Mode(), after.ModTime())
	}
}

// everyOperationOn does one operation alone, since others remove the link.
func everyOperationOn(s *served, name, op string) error {
	switch op {
	case "stat":
		_, err := s.Stat(name)
		return err
	case "readdir":
		_, err := s.ReadDir(name)
		return err
	case "open":
		_, err := s.Open(name)
		return err
	case "space":
		_, err := s.Space(name)
		return err
	case "chmod":
		return s.Chmod(name, 0o777)
	case "chtimes":
		return s.Chtimes(name, unixEpoch, unixEpoch)
	}
	return s.upload(name, "x", UploadOptions{Append: true})
}

func TestNamesThatCannotBeHeldAreADistinctError(t *testing.T) {
	s := serve(t, Options{})
	s.put("/mine", "")
	for _, name := range []string{"/" + strings.Repeat("x", 256), "/a\x00b"} {
		for op, err := range everyOperation(s, name) {
			if !errors.Is(err, ErrName) {
				t.Errorf("%s of a name of %d bytes: %v", op, len(name), err)
			}
		}
	}
	s.wantClean()
}

func TestNamesOfArbitraryBytes(t *testing.T) {
	s := serve(t, Options{})
	var all strings.Builder
	for b := 1; b < 256; b++ {
		if b != '/' {
			all.WriteByte(byte(b))
		}
	}
	odd := []string{all.String()[:200], all.String()[200:], "a\nb", "\xff", "caf\xe9", "caf\u00e9", " ", "...", "-rf", strings.Repeat("m", 255)}
	for _, n := range odd {
		if err := s.Mkdir("/"+n, 0o755); err != nil {
			t.Fatalf("%q: %v", n, err)
		}
		s.mustUpload("/"+n+"/"+n, n, UploadOptions{})
		if err := s.Rename("/"+n+"/"+n, "/"+n+"/renamed"); err != nil {
			t.Errorf("%q: %v", n, err)
		}
		s.want("/"+n+"/renamed", n)
	}
	list, err := s.ReadDir("/")
	if err != nil || len(list) != len(odd) {
		t.Fatalf("%d entries, %v; want %d", len(list), err, len(odd))
	}
	for i := 1; i < len(list); i++ {
		if list[i-1].Name() >= list[i].Name() {
			t.Errorf("%q stands before %q", list[i-1].Name(), list[i].Name())
		}
	}
	s.wantClean()
}

func TestDeepNames(t *testing.T) {
	s := serve(t, Options{})
	name := strings.Repeat("/d", 1500)
	if err := s.MkdirAll(name, 0o755); err != nil {
		t.Fatal(err)
	}
	s.mustUpload(name+"/f", "deep", UploadOptions{})
	if i, err := s.Stat(name + "/f"); err != nil || i.Size() != 4 {
		t.Errorf("%v, %v", i, err)
	}
	if got, err := s.Resolve(name + "/f"); err != nil || got != name+"/f" {
		t.Errorf("Resolve: %v", err)
	}
}
