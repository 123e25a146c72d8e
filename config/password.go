package config

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"

	"golang.org/x/crypto/argon2"
	"golang.org/x/crypto/bcrypt"
)

// The parameters of new hashes: of the equally strong sets in OWASP's Password Storage Cheat Sheet the one with little memory and one thread.
const (
	argonMemory  = 19 * 1024 // KiB
	argonTime    = 2
	argonThreads = 1
	argonSalt    = 16 // bytes
	argonKey     = 32 // bytes
)

// The limits of a hash in a configuration. Beyond them a login would take the memory of the machine or many seconds.
const (
	maxArgonMemory = 1024 * 1024 // KiB
	maxArgonTime   = 64
	maxBcryptCost  = 16
)

// errHash does not contain the text, which may be the password itself.
var errHash = errors.New(`not a password hash: make one with "ftplockd passwd" (argon2id), or use a bcrypt hash`)

// encoding is the base64 of the PHC string format.
var encoding = base64.RawStdEncoding.Strict()

// HashPassword returns a hash of a password for [Account].Password: argon2id in the PHC string format, with a new salt. It takes about 20 ms and
// 19 MiB. It returns an error for a password that is empty or that FTP cannot send.
func HashPassword(plain string) (string, error) {
	if plain == "" {
		return "", errors.New("the password is empty")
	}
	if strings.ContainsAny(plain, "\r\n\x00") {
		return "", errors.New("the password contains a line end or NUL, which FTP cannot send")
	}
	h := hash{memory: argonMemory, time: argonTime, threads: argonThreads, salt: make([]byte, argonSalt)}
	rand.Read(h.salt) // never fails
	h.key = h.derive(plain, argonKey)
	debug.FreeOSMemory() // else a server keeps it for minutes
	return h.String(), nil
}

// hash is a parsed password hash, of bcrypt if that field is set, else of argon2id.
type hash struct {
	memory, time uint32
	threads      uint8
	salt, key    []byte
	bcrypt       []byte
}

// parseHash parses a hash of [HashPassword] or of a bcrypt tool. It refuses hashes that cost too much to check.
func parseHash(text string) (hash, error) {
	if strings.HasPrefix(text, "$2") {
		return parseBcrypt(text)
	}
	return parseArgon(text)
}

// parseArgon reads $argon2id$v=19$m=19456,t=2,p=1$salt$key.
func parseArgon(text string) (hash, error) {
	parts := strings.Split(text, "$")
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" || parts[2] != fmt.Sprintf("v=%d", argon2.Version) {
		return hash{}, errHash
	}
	var h hash
	var err1, err2 error
	_, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &h.memory, &h.time, &h.threads)
	h.salt, err1 = encoding.DecodeString(parts[4])
	h.key, err2 = encoding.DecodeString(parts[5])
	switch {
	case err != nil || err1 != nil || err2 != nil || h.String() != text:
		return hash{}, errHash
	case h.memory > maxArgonMemory:
		return hash{}, errors.New("the password hash needs more than 1 GiB of memory for each login (m above 1048576)")
	case h.time > maxArgonTime:
		return hash{}, fmt.Errorf("the password hash takes too long for each login (t above %d)", maxArgonTime)
	case h.time < 1 || h.threads < 1 || h.memory < 8*uint32(h.threads):
		return hash{}, errors.New("the password hash has impossible parameters (RFC 9106 section 3.1)")
	case len(h.salt) < 8 || len(h.salt) > 64 || len(h.key) < 16 || len(h.key) > 64:
		return hash{}, errors.New("the password hash has a salt or key of unusual length")
	}
	return h, nil
}

func parseBcrypt(text string) (hash, error) {
	const alphabet = "./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	cost, err := bcrypt.Cost([]byte(text))
	switch {
	case err != nil || len(text) != 60 || !strings.Contains("aby", text[2:3]) || strings.Trim(text[7:], alphabet) != "":
		return hash{}, errHash
	case cost > maxBcryptCost:
		return hash{}, fmt.Errorf("the password hash takes too long for each login (bcrypt cost above %d)", maxBcryptCost)
	}
	return hash{bcrypt: []byte(text)}, nil
}

// String returns an argon2id hash in the form of a configuration.
func (h hash) String() string {
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, h.memory, h.time, h.threads,
		encoding.EncodeToString(h.salt), encoding.EncodeToString(h.key))
}

func (h hash) derive(plain string, length int) []byte {
	return argon2.IDKey([]byte(plain), h.salt, h.time, h.memory, h.threads, uint32(length))
}

// matches reports whether it is the hash of a password. It takes the same time for a wrong one.
func (h hash) matches(plain string) bool {
	if h.bcrypt != nil {
		return bcrypt.CompareHashAndPassword(h.bcrypt, []byte(plain)) == nil
	}
	return subtle.ConstantTimeCompare(h.derive(plain, len(h.key)), h.key) == 1
}
