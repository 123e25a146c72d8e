package server

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/config"
)

func TestShellWord(t *testing.T) {
	for text, want := range map[string]string{"phoneacc": "phoneacc", "a-b_c.d@e": "a-b_c.d@e", "it's me": `'it'\''s me'`, "$x": "'$x'"} {
		if got := shellWord(text); got != want {
			t.Errorf("%s: %s", text, got)
		}
	}
}

// TestTheLoginOfTheBannerIsOneWord has a shell read the password from a directory with a quote in its name.
func TestTheLoginOfTheBannerIsOneWord(t *testing.T) {
	t.Setenv(config.EnvPassword, "")
	state := filepath.Join(t.TempDir(), "it's mine")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(state, config.PasswordFile), []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &server{config: &config.Config{State: state, Accounts: []config.Account{{Name: "ftp"}}}}
	out, err := exec.Command("sh", "-c", "printf %s "+s.showAccountLocked(new(strings.Builder), false)).CombinedOutput()
	if err != nil || string(out) != "ftp:secret" {
		t.Errorf("%s %v", out, err)
	}
}

// TestTheBannerDuringAReload needs the race detector.
func TestTheBannerDuringAReload(t *testing.T) {
	r := newRunning(t)
	r.configure("")
	s, err := newServer(t.Context(), Options{ConfigFile: r.file}, r.log, openCluster)
	if err != nil {
		t.Fatal(err)
	}
	reloaded := make(chan struct{})
	go func() {
		defer close(reloaded)
		r.askReload()
	}()
	for reloading := true; reloading; {
		s.banner(false)
		select {
		case <-reloaded:
			reloading = false
		default:
		}
	}
	if err := s.leave(endOrderly); err != nil {
		t.Error(err)
	}
}
