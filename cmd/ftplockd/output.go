package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"
)

// viewCommand makes a command that prints a value of the running server, as a table or with --json.
func viewCommand[T any](cmd *cobra.Command, path string, table func(io.Writer, T) error) *cobra.Command {
	var options serveOptions
	var asJSON bool
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		v, err := get[T](&options, cmd, path)
		if err != nil {
			return err
		}
		if asJSON {
			return printJSON(cmd.OutOrStdout(), v)
		}
		return table(cmd.OutOrStdout(), v)
	}
	options.addStateFlags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// get requests a value from the running server.
func get[T any](o *serveOptions, cmd *cobra.Command, path string) (v T, err error) {
	return request[T](o, cmd, http.MethodGet, path)
}

// request sends a request to the running server and returns its answer.
func request[T any](o *serveOptions, cmd *cobra.Command, method, path string) (v T, err error) {
	body, err := o.ask(cmd, method, path)
	if err == nil {
		err = json.Unmarshal(body, &v)
	}
	return v, err
}

// printJSON prints a value as JSON.
func printJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

// printTable prints rows of columns below a header, or the text none if there are no rows.
func printTable(w io.Writer, header string, rows []string, none string) error {
	if len(rows) == 0 {
		_, err := fmt.Fprintln(w, none)
		return err
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "%s\n%s\n", header, strings.Join(rows, "\n"))
	return table.Flush()
}

// printable replaces characters that move the cursor of a terminal or change the direction of writing.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) {
			return '?'
		}
		return r
	}, s)
}

// dash returns "-" for "": an empty column is hard to see.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func inSeconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(time.Second).String()
}
