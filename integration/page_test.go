package integration

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	cdp "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/ftplockd/ftplockd/integration/harness"
)

// screenshot has TestPageInABrowser write the pictures of the documentation.
var screenshot = flag.Bool("screenshot", false, "write the pictures of the page to docs")

// withPage is the configuration of a server that has a page.
const withPage = "[http]\nlisten = \"127.0.0.1:0\"\n" + defaults

// browser is a tab of a headless Chromium.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu        sync.Mutex
	problems  []string
	tolerated string // a part of problems that are none; "": none is tolerated
}

// browse starts a browser. The end of the test ends it, and fails the test if a script failed.
func browse(t *testing.T) *browser {
	t.Helper()
	harness.Need(t, "chromium")
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal(err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.IgnoreCertErrors,
		chromedp.WSURLReadTimeout(time.Minute), chromedp.WindowSize(1200, 900), chromedp.Env("HOME="+t.TempDir()))
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	ctx, end := chromedp.NewExecAllocator(ctx, options...)
	ctx, closeTab := chromedp.NewContext(ctx)
	b := &browser{t: t, ctx: ctx}
	b.listen(ctx)
	t.Cleanup(func() {
		closeTab()
		end()
		cancel()
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.problems) > 0 {
			t.Errorf("the browser complains:\n%s", strings.Join(b.problems, "\n"))
		}
	})
	return b
}

// listen records the errors of the tab.
func (b *browser) listen(ctx context.Context) {
	problem := func(format string, args ...any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if text := fmt.Sprintf(format, args...); b.tolerated == "" || !strings.Contains(text, b.tolerated) {
			b.problems = append(b.problems, text)
		}
	}
	chromedp.ListenTarget(ctx, func(ev any) {
		switch ev := ev.(type) {
		case *runtime.EventExceptionThrown:
			problem("exception: %v", ev.ExceptionDetails)
		case *runtime.EventConsoleAPICalled:
			if ev.Type == runtime.APITypeError || ev.Type == runtime.APITypeWarning {
				problem("console: %v", ev)
			}
		case *log.EventEntryAdded:
			if ev.Entry.Level == log.LevelError || ev.Entry.Level == log.LevelWarning {
				problem("%s: %s %s", ev.Entry.Source, ev.Entry.Text, ev.Entry.URL)
			}
		case *cdp.EventJavascriptDialogOpening:
			problem("a dialog: %s", ev.Message)
		}
	})
}

// run executes actions.
func (b *browser) run(actions ...chromedp.Action) {
	b.t.Helper()
	if err := chromedp.Run(b.ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// until waits until an expression is true in the page.
func until(expression string) chromedp.Action {
	return chromedp.Poll(expression, nil, chromedp.WithPollingMutation(), chromedp.WithPollingTimeout(patience))
}

// shows returns an expression that is true if a part of the page has a text.
func shows(part, text string) string {
	return fmt.Sprintf("document.getElementById(%q)?.textContent.includes(%q)", part, text)
}

// live waits until the page receives changes.
func live() chromedp.Action {
	return chromedp.Tasks{chromedp.WaitReady("#summary"), until(shows("live", "live"))}
}

// TestPageInABrowser tests what needs a browser: how the page looks, its updates without a reload, and its way to the login after a restart of the
// server. Tests in internal/web check the HTML.
func TestPageInABrowser(t *testing.T) {
	t.Parallel()
	axe := axeSource(t)
	b := browse(t)
	s, long := busyServer(t)
	b.run(chromedp.ActionFunc(func(ctx context.Context) error {
		_, err := cdp.AddScriptToEvaluateOnNewDocument(prepareChart).Do(ctx)
		return err
	}))
	b.run(chromedp.Navigate(s.page), chromedp.SendKeys("[name=user]", "boss"), chromedp.SendKeys("[name=password]", password+"\r"), live(),
		until(shows("attention", "/phone_lock")+"&&"+shows("attention", "Job")))
	b.looks(s, axe, long)
	b.follows(s)
	b.restarts(s)
	b.run(chromedp.Navigate("about:blank"))
	s.kill()
}

// looks visits each kind of page on a desktop in light colours and on a telephone in dark ones. axe-core must find no violation. No page may need
// horizontal scrolling, and only the middle of a name may be cut. With -screenshot it writes the pictures of the documentation.
func (b *browser) looks(s *server, axe, long string) {
	var broken string
	b.run(chromedp.Evaluate(`document.querySelector("#locks a[href^='/break']").getAttribute("href")`, &broken))
	pages := map[string]string{"page": "", "lock": "lock?name=/phone_lock", "lock-long": "lock?name=" + long, "events": "events", "break": strings.TrimPrefix(broken, "/"), "login": "login"}
	type view struct {
		width, height int64
		scheme        string
	}
	views := []view{{390, 844, "dark"}, {1280, 1400, "light"}}
	if *screenshot {
		views = append(views, view{390, 844, "light"})
	}
	for _, view := range views {
		b.run(chromedp.EmulateViewport(view.width, view.height),
			emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: view.scheme}}))
		for name, path := range pages {
			where := fmt.Sprintf("%s at %d pixels, %s", name, view.width, view.scheme)
			b.run(chromedp.Navigate(s.page+path), chromedp.WaitReady("main"))
			if name == "page" {
				b.run(live(), chromedp.Evaluate(`document.querySelectorAll("details").forEach((d) => { d.open = true; })`, nil),
					until(`!document.getElementById("chart").hidden`), chromedp.Evaluate(`plot.setCursor({ left: 40, top: 40 })`, nil))
			}
			var width int64
			var hidden, violations []string
			b.run(chromedp.Evaluate(`document.documentElement.scrollWidth`, &width), chromedp.Evaluate(findHidden, &hidden), chromedp.Evaluate(axe, nil),
				chromedp.Evaluate(`axe.run().then((r) => r.violations.map((v) => v.id + ": " + v.help + "\n" + v.nodes.map((n) => n.html + "\n" + n.failureSummary).join("\n")))`,
					&violations, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
			if width > view.width {
				b.t.Errorf("%s: the page has a width of %d pixels", where, width)
			}
			if len(hidden) > 0 {
				b.t.Errorf("%s: this is hidden:\n%s", where, strings.Join(hidden[:min(len(hidden), 10)], "\n"))
			}
			if len(violations) > 0 {
				b.t.Errorf("%s:\n%s", where, strings.Join(violations, "\n"))
			}
			if *screenshot {
				b.picture(fmt.Sprintf("%s-%d-%s", name, view.width, view.scheme))
			}
		}
	}
}

// follows keeps the page open while locks change. It breaks one by the page.
func (b *browser) follows(s *server) {
	c := s.session(account)
	b.run(chromedp.Navigate(s.page), live(), chromedp.Evaluate(`window.notReloaded = true`, nil))
	c.Want(257, "MKD /locks/0-first")
	b.run(until(shows("locks", "/locks/0-first")+"&&"+shows("events", "/locks/0-first")), chromedp.Focus("#locks a[href='/lock?name=%2flocks%2f0-first']"))
	c.Want(257, "MKD /locks/0-second")
	b.run(until(shows("locks", "/locks/0-second") + ` && notReloaded && document.activeElement.textContent === "/locks/0-first"`))

	// Times have 24 hours, in the viewer's zone, with UTC in the title.
	var times []string
	b.run(emulation.SetTimezoneOverride("Asia/Kolkata"), chromedp.Evaluate(`(() => {
		const e = document.createElement("p"), today = new Date(new Date().setHours(15, 4, 5, 0));
		e.innerHTML = '<time datetime="2026-01-02T15:04:05Z" title="2026-01-02 15:04:05 UTC"></time>';
		showTimes(e);
		return [clock(today), clock(today, false), e.textContent, e.firstChild.title];
	})()`, &times))
	if want := []string{"15:04:05", "15:04", "01-02 20:34", "2026-01-02 15:04:05 UTC"}; !slices.Equal(times, want) {
		b.t.Errorf("times are shown as %q, want %q", times, want)
	}

	b.run(chromedp.Click(`//tr[td/a[.="/locks/0-first"]]//a[.="Break"]`), chromedp.SendKeys("[name=reason]", "it <hangs>"), chromedp.Click("button.danger"), live(),
		until(`!`+shows("locks", "/locks/0-first")+"&&"+shows("events", "it <hangs>")))
	c.Want(550, "RMD /locks/0-first", "taken away", "broken by boss, it <hangs>")
}

// restarts restarts the server, which forgets its logins, and waits until the open page leads to the login.
func (b *browser) restarts(s *server) {
	_, port := split(strings.TrimSuffix(strings.TrimPrefix(s.page, "https://"), "/"))
	writeFile(b.t, s.config, []byte(strings.Replace(readSoon(b.t, s.config), "0.0.0.0:0", "0.0.0.0:"+port, 1)))
	b.mu.Lock()
	b.tolerated = ":" + port + "/" // requests that the server does not answer
	b.mu.Unlock()
	s.stop()
	s.start()
	b.run(chromedp.WaitVisible("[name=password]"))
}

// busyServer starts a server with long names, queues, refusals, a refused job and many sessions. It returns the longest name.
func busyServer(t *testing.T) (s *server, long string) {
	t.Helper()
	s = startServer(t, tlsTables(t, t.TempDir())+"[http]\nlisten = \"0.0.0.0:0\"\n"+ // on other addresses than loopback the page needs TLS and a login
		strings.Replace(defaults, `match = "**/phone_lock"`, `match = "/phone_lock"`+"\nprotects = [\"/phone.tsv\"]", 1)+
		"[[lock]]\nmatch = \"/www/.deploy-lock\"\nprotects = [\"/www/**\"]\nautomatic = true\nwait = \"0s\"\n")
	holder, other := s.session(account), s.session("other")
	long = "/locks/" + strings.Repeat("a-name-without-a-space-", 10)
	names := []string{"/phone_lock", "/locks/nightly-backup", long, "/locks/<img src=x onerror=alert(2)>"}
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
	for _, name := range []string{names[0], names[0], names[4], names[5]} {
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
	cmd := exec.Command("node", "-e", `process.stdout.write(require("axe-core").source)`)
	cmd.Env = append(os.Environ(), nodePath(t, "axe-core"))
	source, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(source)
}

// pictures are those that the documentation shows.
var pictures = map[string]string{"page-1280-light": "page.png", "page-390-light": "page-phone.png", "lock-1280-light": "page-lock.png"}

// picture writes what the browser's window shows to docs, if the documentation has that picture.
func (b *browser) picture(name string) {
	b.t.Helper()
	file, ok := pictures[name]
	if !ok {
		return
	}
	var image []byte
	b.run(chromedp.Sleep(500*time.Millisecond), chromedp.CaptureScreenshot(&image))
	writeFile(b.t, filepath.Join("../docs", file), image)
}
