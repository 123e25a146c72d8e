package main

import (
	"errors"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// newProfilesCommand returns the command that checks and lists the profiles.
func newProfilesCommand(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:   "profiles",
		Short: "check the file with the profiles and list them",
		Long: `Profiles says all that is wrong with the file, each thing on a line that begins with file and line, and exits with
status 78; or it lists the profiles. No server is asked.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			all, err := s.loadProfiles()
			var wrong *mistakes
			if errors.As(err, &wrong) {
				fmt.Fprintln(os.Stderr, wrong)
				return silent(exitProfile)
			}
			if err != nil {
				return err
			}
			t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
			fmt.Fprintln(t, "PROFILE\tSERVER\tUSER\tLOCK")
			for _, name := range all.names {
				p := all.all[name]
				target, err := p.target(name, all.dir(), false)
				if err != nil {
					return err
				}
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", oneLine(name), p.address, target.user(), p.lock)
			}
			return t.Flush()
		},
	}
}
