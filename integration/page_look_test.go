package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// TestPageIsAccessibleAndFits visits each kind of page on a desktop in light colours, and on a telephone in dark ones. axe-core must find no
// violation, and no page may need horizontal scrolling. With -screenshot the test writes the pictures of the documentation.
func TestPageIsAccessibleAndFits(t *testing.T) {
	t.Parallel()
	axe := axeSource(t)
	b := browse(t)
	b.tolerated = "status of 404" // the message page
	s := startServer(t, strings.Replace(withPage, `match = "**/phone_lock"`, `match = "**/phone_lock"`+"\nprotects = [\"$1/phone.tsv\"]", 1))
	holder, other := s.session(account), s.session("other")
	holder.Want(200, "SITE WAIT 0")
	names := []string{"/phone_lock", "/locks/nightly-backup", "/locks/" + strings.Repeat("a-name-without-a-space-", 10)}
	for i := range 60 {
		names = append(names, fmt.Sprintf("/locks/stock-%02d", i))
	}
	for _, name := range names {
		holder.Want(257, "MKD "+name)
	}
	other.Want(200, "SITE WAIT 0")
	for _, name := range names[:3] {
		other.Want(550, "MKD "+name)
	}
	holder.stores("/phone.tsv", "555-0100\tAda\n")
	waiter := s.session("other")
	waiter.Want(200, "SITE WAIT 100")
	waiter.says("MKD /phone_lock")

	b.run(b.ctx, chromedp.Navigate(s.page+"login"), chromedp.SendKeys("[name=user]", "boss"), chromedp.SendKeys("[name=password]", password+"\r"), live(),
		until(shows("attention", "/phone_lock")+"&&"+shows("attention", "other@")))
	if *screenshot > 0 {
		pause(t.Context(), *screenshot)
	}
	var broken string
	b.run(b.ctx, chromedp.Evaluate(`document.querySelector("#locks a[href^='/break']").getAttribute("href")`, &broken))
	pages := []struct {
		name, path string
		most       int // the height in pixels on a telephone
	}{
		{"page", "", 3600},
		{"page-sorted", "?sort=-waiting&q=stock", 3600},
		{"lock", "lock?name=/phone_lock", 1800},
		{"lock-long", "lock?name=" + names[2], 1600},
		{"events", "events", 6000},
		{"break", strings.TrimPrefix(broken, "/"), 900},
		{"message", "break?token=999999", 844},
		{"login", "login", 844},
	}
	type view struct {
		width, height int64
		scheme        string
	}
	views := []view{{1280, 900, "light"}, {390, 844, "dark"}}
	if *screenshot > 0 {
		views = append(views, view{390, 844, "light"})
	}
	for _, view := range views {
		b.run(b.ctx, chromedp.EmulateViewport(view.width, view.height),
			emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: view.scheme}}))
		for _, page := range pages {
			where := fmt.Sprintf("%s at %d pixels, %s", page.name, view.width, view.scheme)
			b.run(b.ctx, chromedp.Navigate(s.page+page.path), chromedp.WaitReady("main"))
			if strings.HasPrefix(page.name, "page") {
				b.run(b.ctx, live(), chromedp.Evaluate(`document.querySelectorAll("details").forEach((d) => { d.open = true; })`, nil))
			}
			var size struct{ Width, Height int }
			b.run(b.ctx, chromedp.Evaluate(`({ Width: document.documentElement.scrollWidth, Height: document.documentElement.scrollHeight })`, &size))
			if size.Width > int(view.width) || view.width == 390 && size.Height > page.most {
				t.Errorf("%s: the page has %d × %d pixels, want at most %d × %d", where, size.Width, size.Height, view.width, page.most)
			}
			var violations []string
			b.run(b.ctx, chromedp.Evaluate(axe, nil), chromedp.Evaluate(`axe.run().then((r) => r.violations.map((v) => v.id + ": " + v.help + "\n" + v.nodes.map((n) => n.html + "\n" + n.failureSummary).join("\n")))`,
				&violations, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
			if len(violations) > 0 {
				t.Errorf("%s:\n%s", where, strings.Join(violations, "\n"))
			}
			if *screenshot > 0 {
				b.picture(t, fmt.Sprintf("%s-%d-%s", page.name, view.width, view.scheme))
			}
		}
	}
	b.run(b.ctx, chromedp.Navigate("about:blank"))
	s.kill()
}

// axeSource returns the program of axe-core, which npm has installed.
func axeSource(t *testing.T) string {
	t.Helper()
	nodePath(t, "axe-core")
	root, err := exec.Command("npm", "root", "--global").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range append(filepath.SplitList(os.Getenv("NODE_PATH")), strings.TrimSpace(string(root))) {
		if source, err := os.ReadFile(filepath.Join(dir, "axe-core", "axe.min.js")); err == nil {
			return string(source)
		}
	}
	t.Fatal("npm's package axe-core has no axe.min.js")
	return ""
}

// pictures are those that the documentation shows.
var pictures = map[string]string{"page-1280-light": "page.png", "page-390-light": "page-phone.png", "lock-1280-light": "page-lock.png"}

// picture writes what the browser's window shows to docs, if the documentation has that picture.
func (b *browser) picture(t *testing.T, name string) {
	t.Helper()
	file, ok := pictures[name]
	if !ok {
		return
	}
	var image []byte
	b.run(b.ctx, chromedp.Sleep(500*time.Millisecond), chromedp.CaptureScreenshot(&image))
	writeFile(t, filepath.Join("../docs", file), image)
}
