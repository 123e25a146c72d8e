package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ftplockd/ftplockd/config"
	"github.com/ftplockd/ftplockd/internal/server"
)

// newInitCommand returns the command that writes a first configuration.
func newInitCommand() *cobra.Command {
	var q quickstart
	builtin := config.Default()
	cmd := &cobra.Command{
		Use:   "init [FILE]",
		Short: "Write a first configuration file, and print the next commands",
		Long: `Init writes a configuration file with comments, one account and two lock rules, and prints the password of the account and three
commands: they start the server, acquire a lock, and list it. The file has only the hash of the password, so keep the output. FILE is
ftplockd.toml if it is left out. Init asks nothing, overwrites no file, and makes no directory: the server makes them.`,
		Example: `  ftplockd init
  ftplockd init /etc/ftplockd/ftplockd.toml --account phone --listen :21 --root /var/lib/ftplockd/files --state /var/lib/ftplockd/state`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			file := "ftplockd.toml"
			if len(args) == 1 {
				file = args[0]
			}
			next, err := q.write(file)
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), next)
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&q.account, "account", "ftp", "`NAME` of the account")
	flags.StringVar(&q.listen, "listen", ":2121", "listen on `HOST:PORT`; without a host: on every address of this machine")
	flags.StringVar(&q.root, "root", builtin.Root, "the `DIR` that clients see as /")
	flags.StringVar(&q.state, "state", builtin.State, "`DIR` for the server's own files")
	return cmd
}

// quickstart has the values of a first configuration.
type quickstart struct{ account, listen, root, state string }

// firstConfiguration is the file of "ftplockd init". Its arguments are strings in the form of TOML. Its rules are those of README.md.
const firstConfiguration = `# The configuration of ftplockd. "ftplockd config example" explains every key.
#
#   ftplockd config check FILE    # after you changed this file
#   ftplockd reload               # applies it; listen, root, state and [tls] mode need a restart

# ":21" is the usual port. On most systems only root may listen there, or a service with CAP_NET_BIND_SERVICE.
listen = [%s]

# The directory that clients see as "/".
root = %s

# The server's own files: locks, history, control socket. Clients do not see them.
state = %s

# Without TLS, passwords and files cross the network unencrypted.
# [tls]
# mode        = "required"
# certificate = "/etc/ftplockd/tls/fullchain.pem"
# key         = "/etc/ftplockd/tls/privkey.pem"

# Open these ports in the firewall, too.
# [ftp]
# passive_ports = "30000-30999"

# The page of locks, sessions and transfers, and /metrics. All users of this machine can read them.
# [http]
# listen = "127.0.0.1:2180"

# An account for each program: the log and "ftplockd locks" then show which program holds a lock.
[[account]]
name     = %s
password = %s    # made by: ftplockd passwd

# MKD phone_lock acquires a lock, RMD releases it. It protects the file phone.tsv beside it: only its holder can change the file.
[[lock]]
match    = "**/*_lock"
max_age  = "6m"                    # if the holder hangs, the lock ends after this time
protects = ["$1/$2.tsv"]

# Locks for any purpose: MKD /locks/NAME.
[[lock]]
match    = "/locks/**"
`

// write writes the file and returns the text that comes next. It overwrites no file.
func (q quickstart) write(file string) (next string, err error) {
	password := rand.Text()
	hash, err := config.HashPassword(password)
	if err != nil {
		return "", err
	}
	var values []any
	for _, v := range []string{q.listen, absolute(q.root), absolute(q.state), q.account, hash} {
		values = append(values, fmt.Sprintf("%q", v))
	}
	text := fmt.Sprintf(firstConfiguration, values...)
	if _, err := config.Parse([]byte(text), file); err != nil {
		return "", server.UsageError{Err: err}
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("%s exists, and init overwrites no file: name another one", file)
	}
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(file))
	}
	return q.next(absolute(file), password), nil
}

// next returns the account and the next three commands.
func (q quickstart) next(file, password string) string {
	var b strings.Builder
	word := "'" + strings.ReplaceAll(file, "'", `'\''`) + "'"
	host, port, _ := net.SplitHostPort(q.listen) // Parse has checked it
	if ip := net.ParseIP(host); host == "" || ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	fmt.Fprintf(&b, "wrote %s\naccount %s, password %s\n\n", file, q.account, password)
	b.WriteString("The file has only a hash: keep the password. Start the server, acquire a lock from another window, list it:\n\n")
	fmt.Fprintf(&b, "  ftplockd --config %s\n", word)
	fmt.Fprintf(&b, "  curl -sv -u '%s:%s' -Q 'MKD /phone_lock' ftp://%s/ 2>&1 | grep phone_lock\n",
		strings.ReplaceAll(q.account, "'", `'\''`), password, net.JoinHostPort(host, port))
	fmt.Fprintf(&b, "  ftplockd locks --config %s\n", word)
	return b.String()
}

// absolute returns a path that does not depend on the working directory.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}
