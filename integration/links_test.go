package integration

import (
	"os"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// lftp removes what a directory contains, and sends DELE for a link.
func TestLftpRemovesALinkAndKeepsItsTarget(t *testing.T) {
	t.Parallel()
	harness.Need(t, "lftp")
	s := startServer(t, defaults)
	from := site(t)
	for _, remove := range []string{"rm -r /release", "mirror -R --delete " + from + " /release"} {
		for _, list := range []string{"no", "yes"} { // LIST, MLSD
			t.Run(remove[:2]+" mlsd="+list, func(t *testing.T) {
				s.write("/shared/photo", "the only copy")
				s.write("/release/index", "x")
				if err := os.Symlink("../shared", s.path("/release/uploads")); err != nil {
					t.Fatal(err)
				}
				mustRun(t, "lftp", "-c", lftpOpen(s.v4, false)+"set ftp:use-mlsd "+list+"; "+remove)
				if s.exists("/release/uploads") {
					t.Error("the link is left")
				}
				wantFile(t, s.path("/shared/photo"), "the only copy")
			})
		}
	}
}
