package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cdp "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// TestPageIsAccessibleAndFits visits each kind of page on a desktop in light colours, on a tablet, and on a telephone in dark ones. axe-core must find
// no violation. No page may need horizontal scrolling, and only the middle of a name may be cut. With -screenshot the test writes the pictures of the
// documentation.
func TestPageIsAccessibleAndFits(t *testing.T) {
	t.Parallel()
	axe := axeSource(t)
	b := browse(t)
	b.tolerated = "status of 404" // the message page
	s, long := busyServer(t)
	b.run(b.ctx, chromedp.ActionFunc(func(ctx context.Context) error {
		_, err := cdp.AddScriptToEvaluateOnNewDocument(prepareChart).Do(ctx)
		return err
	}))
	b.run(b.ctx, chromedp.Navigate(s.page+"login"), chromedp.SendKeys("[name=user]", "boss"), chromedp.SendKeys("[name=password]", password+"\r"), live(),
		until(shows("attention", "/phone_lock")+"&&"+shows("attention", "Job")))
	var broken string
	b.run(b.ctx, chromedp.Evaluate(`document.querySelector("#locks a[href^='/break']").getAttribute("href")`, &broken))
	pages := []struct {
		name, path string
		most       int // the height in pixels on a telephone
	}{
		{"page", "", 6000},
		{"page-sorted", "?sort=-waiting&q=stock", 6000},
		{"lock", "lock?name=/phone_lock", 1800},
		{"lock-long", "lock?name=" + long, 1600},
		{"events", "events", 9000},
		{"break", strings.TrimPrefix(broken, "/"), 900},
		{"message", "break?token=999999", 844},
		{"login", "login", 844},
	}
	type view struct {
		width, height int64
		scheme        string
	}
	views := []view{{1280, 1400, "light"}, {768, 1024, "light"}, {390, 844, "dark"}}
	if *screenshot {
		views = append(views, view{390, 844, "light"})
	}
	for _, view := range views {
		b.run(b.ctx, chromedp.EmulateViewport(view.width, view.height),
			emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: view.scheme}}))
		for _, page := range pages {
			where := fmt.Sprintf("%s at %d pixels, %s", page.name, view.width, view.scheme)
			b.run(b.ctx, chromedp.Navigate(s.page+page.path), chromedp.WaitReady("main"))
			if strings.HasPrefix(page.name, "page") {
				b.run(b.ctx, live(), chromedp.Evaluate(`document.querySelectorAll("details").forEach((d) => { d.open = true; })`, nil),
					until(`!document.getElementById("chart").hidden`), chromedp.Evaluate(`plot.setCursor({ left: 40, top: 40 })`, nil))
			}
			var size struct{ Width, Height int }
			b.run(b.ctx, chromedp.Evaluate(`({ Width: document.documentElement.scrollWidth, Height: document.documentElement.scrollHeight })`, &size))
			if size.Width > int(view.width) || view.width == 390 && size.Height > page.most {
				t.Errorf("%s: the page has %d × %d pixels, want at most %d × %d", where, size.Width, size.Height, view.width, page.most)
			}
			var hidden []string
			b.run(b.ctx, chromedp.Evaluate(findHidden, &hidden))
			if len(hidden) > 0 {
				t.Errorf("%s: this is hidden:\n%s", where, strings.Join(hidden[:min(len(hidden), 10)], "\n"))
			}
			var violations []string
			b.run(b.ctx, chromedp.Evaluate(axe, nil), chromedp.Evaluate(`axe.run().then((r) => r.violations.map((v) => v.id + ": " + v.help + "\n" + v.nodes.map((n) => n.html + "\n" + n.failureSummary).join("\n")))`,
				&violations, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
			if len(violations) > 0 {
				t.Errorf("%s:\n%s", where, strings.Join(violations, "\n"))
			}
			if *screenshot {
				b.picture(t, fmt.Sprintf("%s-%d-%s", page.name, view.width, view.scheme))
			}
		}
	}
	b.run(b.ctx, chromedp.Navigate("about:blank"))
	s.kill()
}

// busyServer starts a server with long names, queues, refusals, a refused job and many sessions. It returns the longest name.
func busyServer(t *testing.T) (s *server, long string) {
	t.Helper()
	s = startServer(t, strings.Replace(withPage, `match = "**/phone_lock"`, `match = "/phone_lock"`+"\nprotects = [\"/phone.tsv\"]", 1)+
		"[[lock]]\nmatch = \"/www/.deploy-lock\"\nprotects = [\"/www/**\"]\nautomatic = true\nwait = \"0s\"\n")
	holder, other := s.session(account), s.session("other")
	long = "/locks/" + strings.Repeat("a-name-without-a-space-", 10)
	names := []string{"/phone_lock", "/locks/nightly-backup", long}
	for i := range 4 {
		names = append(names, fmt.Sprintf("/locks/warehouse-north-incoming-delivery-%d", i))
	}
	for i := range 60 {
		names = append(names, fmt.Sprintf("/locks/stock-%02d", i))
	}
	holder.Want(200, "SITE WAIT 0")
	for _, name := range names {
		holder.Want(257, "MKD "+name)
	}
	other.Want(200, "SITE WAIT 0")
	for _, name := range names[:4] {
		other.Want(550, "MKD "+name)
	}
	refused := func(c *session, path string) {
		if err := c.Store(path, []byte("x")); err == nil {
			t.Errorf("STOR %s is not refused", path)
		}
	}
	refused(other, "/phone.tsv")
	holder.stores("/phone.tsv", "555-0100\tAda\n")
	other.stores("/www/other.html", "x")
	holder.wantEither("SIZE /www/index.html")
	refused(holder, "/www/index.html")
	for _, name := range []string{names[0], names[0], names[3], names[4]} {
		waiter := s.session("other")
		waiter.Want(200, "SITE WAIT 100")
		waiter.says("MKD " + name)
	}
	for range 6 {
		s.session("other")
	}
	return s, long
}

// prepareChart gives the chart an hour of samples with wide labels, and records labels that the canvas cuts.
const prepareChart = `(() => {
	const now = Math.floor(Date.now() / 1000), column = (f) => Array.from({ length: 360 }, (_, i) => f(i));
	const samples = [column((i) => now - 3600 + 10 * i), column((i) => 12000 + i), column((i) => i % 7), column((i) => i % 5 ? null : 12345.67)];
	const ask = window.fetch, paint = CanvasRenderingContext2D.prototype.fillText;
	window.fetch = (what, ...rest) => what === "/chart.json" ? Promise.resolve(Response.json(samples)) : ask(what, ...rest);
	window.cutLabels = new Set();
	CanvasRenderingContext2D.prototype.fillText = function (text, x, ...rest) {
		const width = this.measureText(text).width, left = x - ({ center: width / 2, right: width }[this.textAlign] || 0);
		if (left < 0 || left + width > this.canvas.width) window.cutLabels.add(text);
		paint.call(this, text, x, ...rest);
	};
})()`

// findHidden returns what a page cuts or hides: cells, the legend and the labels of the chart, reasons, and names that would have room.
const findHidden = `(() => {
	const found = [...window.cutLabels].map((label) => "a label of the chart: " + label);
	const report = (what, e) => found.push(what + ": " + e.outerHTML.slice(0, 300));
	const visible = (e) => e.checkVisibility() && getComputedStyle(e.closest("thead") || e).clipPath === "none";
	for (const e of document.querySelectorAll("header, th, td, #plot")) {
		if (visible(e) && e.scrollWidth > e.clientWidth) report("cut", e);
		if (e.tagName === "TD" && /held by|since you looked/.test(e.textContent) && !visible(e)) report("no reason", e);
	}
	const plot = document.getElementById("plot")?.getBoundingClientRect();
	for (const e of document.querySelectorAll(".u-legend th, .u-legend td")) {
		const box = e.getBoundingClientRect();
		if (box.width > 0 && (box.left < plot.left || box.right > plot.right + 1 || box.bottom > plot.bottom + 1)) report("outside the chart", e);
	}
	for (const e of document.querySelectorAll(".name .head")) {
		const cell = e.closest("td"), room = cell.getBoundingClientRect().right - e.nextSibling.getBoundingClientRect().right;
		if (visible(e) && e.scrollWidth > e.clientWidth && (room > 40 || innerWidth === 1280 && cell.title.length < 45)) report("shortened", cell);
	}
	return found;
})()`

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
