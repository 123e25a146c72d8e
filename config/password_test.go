package config

import (
	"strings"
	"testing"

	"golang.org/x/crypto/bcrypt"
)

// cheap returns a hash that is fast to compute.
func cheap(password string) string {
	h := hash{memory: 8, time: 1, threads: 1, salt: []byte("8 bytes or more")}
	h.key = h.derive(password, 32)
	return h.String()
}

func TestHashPasswordReturnsArgon2id(t *testing.T) {
	text, err := HashPassword("secret")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(text, "$argon2id$v=19$m=19456,t=2,p=1$") {
		t.Error(text)
	}
	h, err := parseHash(text)
	if err != nil || len(h.salt) != 16 || len(h.key) != 32 {
		t.Error(err, len(h.salt), len(h.key))
	}
	if !h.matches("secret") || h.matches("Secret") || h.matches("") {
		t.Error("fits the wrong password, or not the right one")
	}
	if again, _ := HashPassword("secret"); again == text {
		t.Error("two hashes share a salt")
	}
}

func TestHashPasswordRefusesPasswordsThatFTPCannotSend(t *testing.T) {
	for _, plain := range []string{"", "a\nb", "a\rb", "a\x00b"} {
		if _, err := HashPassword(plain); err == nil {
			t.Errorf("%q", plain)
		}
	}
}

// The vector is from the reference implementation, github.com/P-H-C/phc-winner-argon2, src/test.c.
func TestArgonHashesOfOtherProgramsWork(t *testing.T) {
	h, err := parseHash("$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc")
	if err != nil {
		t.Fatal(err)
	}
	if !h.matches("password") || h.matches("passwore") {
		t.Error("does not agree with the reference implementation")
	}
}

func TestBcryptHashesWork(t *testing.T) {
	text, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	for _, minor := range []string{"a", "b", "y"} { // y: htpasswd
		h, err := parseHash("$2" + minor + string(text[3:]))
		if err != nil {
			t.Fatal(err)
		}
		if !h.matches("secret") || h.matches("secreT") {
			t.Error(minor)
		}
	}
}

func TestParseHashRefuses(t *testing.T) {
	const salt, key = "c29tZXNhbHQ", "CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc"
	bcryptOf := func(cost string) string { return "$2y$" + cost + "$" + strings.Repeat("a", 53) }
	for name, c := range map[string]struct{ text, want string }{
		"a password":                    {"secret", "not a password hash"},
		"another kind of hash":          {"$6$salt$hash", "not a password hash"},
		"argon2i":                       {"$argon2i$v=19$m=65536,t=2,p=1$" + salt + "$" + key, "not a password hash"},
		"another version":               {"$argon2id$v=16$m=65536,t=2,p=1$" + salt + "$" + key, "not a password hash"},
		"more than the hash":            {"$argon2id$v=19$m=65536,t=2,p=1,x=2$" + salt + "$" + key, "not a password hash"},
		"no base64":                     {"$argon2id$v=19$m=65536,t=2,p=1$" + salt + "$!" + key, "not a password hash"},
		"memory above 1 GiB":            {"$argon2id$v=19$m=1048577,t=2,p=1$" + salt + "$" + key, "1 GiB"},
		"memory above 2^32":             {"$argon2id$v=19$m=4294967296,t=2,p=1$" + salt + "$" + key, "not a password hash"},
		"time without end":              {"$argon2id$v=19$m=64,t=65,p=1$" + salt + "$" + key, "too long"},
		"no time":                       {"$argon2id$v=19$m=64,t=0,p=1$" + salt + "$" + key, "impossible"}, // argon2.IDKey panics
		"no threads":                    {"$argon2id$v=19$m=64,t=1,p=0$" + salt + "$" + key, "impossible"}, // argon2.IDKey panics
		"too little memory":             {"$argon2id$v=19$m=63,t=1,p=8$" + salt + "$" + key, "impossible"},
		"an empty key":                  {"$argon2id$v=19$m=64,t=1,p=1$" + salt + "$", "unusual length"}, // would fit any password
		"a salt of few bytes":           {"$argon2id$v=19$m=64,t=1,p=1$YQ$" + key, "unusual length"},
		"bcrypt cost 17":                {bcryptOf("17"), "too long"},
		"bcrypt cost 32":                {bcryptOf("32"), "not a password hash"},
		"bcrypt cut off":                {bcryptOf("10")[:59], "not a password hash"},
		"bcrypt too long":               {bcryptOf("10") + "a", "not a password hash"},
		"bcrypt with an invalid letter": {bcryptOf("10")[:59] + "$", "not a password hash"},
		"bcrypt of kind 2x":             {"$2x$10$" + strings.Repeat("a", 53), "not a password hash"},
	} {
		if _, err := parseHash(c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
