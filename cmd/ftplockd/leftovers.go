package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ftplockd/ftplockd/config"
	"github.com/ftplockd/ftplockd/internal/files"
	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/server"
)

// newLeftoversCommand returns the command for the contents of locks that ended without RMD.
func newLeftoversCommand() *cobra.Command {
	var options serveOptions
	cmd := &cobra.Command{
		Use:   "leftovers",
		Short: "List, restore or remove the files of locks that ended without RMD",
		Long: `Leftovers lists the files in locks that ended without RMD: by their age or idle time, by a disconnect, or by an administrator.
Clients do not see these files. The server removes them after locks.leftover_max_age. The first column is the ID: the token of
the hold. "ftplockd history LOCK" prints the events of the lock. Leftovers are in the served directory, so the commands need --config
or --root, and no state directory.`,
		Example: "  ftplockd leftovers\n  ftplockd leftovers restore 42 /rescued\n  ftplockd leftovers remove 42",
		Args:    onlyCommands,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return options.withLeftovers(func(l leftovers) error { return l.list(cmd.OutOrStdout()) })
		},
	}
	cmd.AddCommand(&cobra.Command{
		Use: "restore ID PATH", Short: "Move the files to a path of the served tree that does not exist and is no lock's name", Args: cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			return options.withLeftovers(func(l leftovers) error { return l.restore(args[0], args[1]) })
		},
	})
	cmd.AddCommand(&cobra.Command{
		Use: "remove ID", Short: "Remove the files", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return options.withLeftovers(func(l leftovers) error {
				name, err := l.find(args[0])
				if err != nil {
					return err
				}
				return l.root.RemoveAll(name)
			})
		},
	})
	cmd.PersistentFlags().StringVar(&options.ConfigFile, "config", "", "configuration `FILE` (TOML) of the server (see ftplockd --help)")
	cmd.PersistentFlags().StringVar(&options.Root, "root", "", "the served `DIR`, instead of that of the configuration")
	return cmd
}

// leftovers are the files of ended locks in a served directory.
type leftovers struct {
	root   *os.Root
	config *config.Config
}

// withLeftovers runs f with the leftovers of the served directory.
func (o *serveOptions) withLeftovers(f func(leftovers) error) error {
	return o.withServer(func() error { return o.openLeftovers(f) })
}

func (o *serveOptions) openLeftovers(f func(leftovers) error) error {
	c, err := o.Load()
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(c.Root)
	if err != nil {
		return err
	}
	return errors.Join(f(leftovers{root: root, config: c}), root.Close())
}

// names returns the directories of the leftovers. It does not use the FS of the root, because that refuses names that are not UTF-8.
func (l leftovers) names() (names []string, err error) {
	top := l.root.Name() + string(filepath.Separator) // the separator makes WalkDir follow a link
	err = filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // it was removed meanwhile
			return nil
		case err != nil:
			fmt.Fprintf(os.Stderr, "ftplockd: not searched: %v\n", err)
			return fs.SkipDir
		}
		if name, err = filepath.Rel(top, name); err != nil {
			return err
		}
		switch name = filepath.ToSlash(name); {
		case name == strings.TrimPrefix(files.Leftovers, "/") || !d.IsDir():
			return nil
		case files.IsLeftover(name):
			names = append(names, name)
			return fs.SkipDir
		}
		return nil
	})
	slices.Sort(names)
	return names, err
}

// describeLeftover reads the token, the holder and the lock from a name.
func describeLeftover(name string) (token, holder, of string) {
	parts := strings.SplitN(strings.TrimPrefix(path.Base(name), ".ftplockd-leftover-"), ",", 3)
	parts = append(parts, "", "")
	for i, p := range parts {
		if plain, err := url.PathUnescape(p); err == nil {
			parts[i] = plain
		}
	}
	return parts[0], parts[1], parts[2]
}

func (l leftovers) list(w io.Writer) error {
	names, err := l.names()
	if err != nil {
		return err
	}
	var rows []string
	for _, name := range names {
		info, err := l.root.Stat(name)
		if err != nil {
			return err
		}
		entries, err := os.ReadDir(filepath.Join(l.root.Name(), name))
		if err != nil {
			return err
		}
		token, holder, of := describeLeftover(name)
		rows = append(rows, fmt.Sprintf("%s\t%q\t%q\t%s\t%d", token, of, holder, info.ModTime().UTC().Format(time.RFC3339), len(entries)))
	}
	return printTable(w, "ID\tLOCK\tHOLDER\tSINCE\tENTRIES", rows, "there are no leftovers")
}

func (l leftovers) find(id string) (string, error) {
	names, err := l.names()
	if err != nil {
		return "", err
	}
	for _, name := range names {
		if token, _, _ := describeLeftover(name); token == id {
			return name, nil
		}
	}
	return "", fmt.Errorf("there are no leftovers with the ID %s: see \"ftplockd leftovers\"", id)
}

func (l leftovers) restore(id, to string) error {
	name, err := l.find(id)
	if err != nil {
		return err
	}
	if to, err = l.resolve(to); err != nil {
		return err
	}
	rules, err := lock.NewRules(server.RulesOf(l.config))
	if err != nil {
		return err
	}
	if _, ok := rules.For(lock.Name("/" + to)); ok {
		return fmt.Errorf("/%s is the name of a lock: choose another path", to)
	}
	if strings.Contains("/"+to, "/.ftplockd-") || "/"+to == l.config.FTP.StatusFile {
		return fmt.Errorf("/%s is a name that the server uses: choose another path", to)
	}
	if _, err := l.root.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("/%s exists already, or cannot be read: choose another path", to)
	}
	info, err := l.root.Lstat(name)
	if err != nil {
		return err
	}
	if err := l.root.Chmod(name, info.Mode().Perm()); err != nil { // the sticky bit marks the directory of a lock
		return err
	}
	return l.root.Rename(name, to)
}

// resolve resolves the links in the parent of a path of the served tree, and returns the path relative to the root.
func (l leftovers) resolve(name string) (string, error) {
	name = path.Clean("/" + name)
	root, err := filepath.EvalSymlinks(l.root.Name())
	if err != nil {
		return "", err
	}
	parent, err := filepath.EvalSymlinks(filepath.Join(root, path.Dir(name)))
	if err != nil {
		return "", err
	}
	below, err := filepath.Rel(root, parent)
	return path.Join(filepath.ToSlash(below), path.Base(name)), err
}
