package main

import (
	"testing"

	"github.com/ftplockd/ftplockd/config"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// The configuration imports nothing of the project, so it spells these itself.
func TestConfigurationAndLocksSpeakTheSameWords(t *testing.T) {
	for word, same := range map[string]bool{
		"keep":    config.DisconnectKeep == string(lock.KeepOnDisconnect),
		"release": config.DisconnectRelease == string(lock.ReleaseOnDisconnect),
		"address": config.ReleaseAddress == string(lock.ReleaseAddress),
		"user":    config.ReleaseUser == string(lock.ReleaseUser),
		"session": config.ReleaseSession == string(lock.ReleaseSession),
		"anyone":  config.ReleaseAnyone == string(lock.ReleaseAnyone),
	} {
		if !same {
			t.Error(word)
		}
	}
}

func TestNoAccountCanBeTakenForTheHost(t *testing.T) {
	c := config.Default()
	hash, err := config.HashPassword("secret")
	if err != nil {
		t.Fatal(err)
	}
	c.Accounts = []config.Account{config.DefaultAccount(lock.HostAccount, hash)}
	if c.Validate() == nil {
		t.Errorf("an account may be named %q", lock.HostAccount)
	}
}
