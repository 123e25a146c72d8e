package integration

import (
	"context"
	"flag"
	"fmt"
	"os/exec"
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

// screenshot has TestScreenshotOfThePage made anew: of a page whose chart has been drawn for so long.
var screenshot = flag.Duration("screenshot", 0, "make docs/page.png, after so much time for its chart")

// withPage is the configuration of a server that has a page.
const withPage = "[http]\nlisten = \"127.0.0.1:0\"\n" + defaults

// browser is a headless Chromium.
type browser struct {
	t     *testing.T
	ctx   context.Context // of its first tab
	close []func()        // its tabs; the first one is closed last

	mu       sync.Mutex
	problems []string // what its tabs had to complain of
}

// browse starts a browser. It ends with the test, which fails if a script did.
func browse(t *testing.T) *browser {
	t.Helper()
	harness.Need(t, "chromium")
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal(err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.WSURLReadTimeout(time.Minute), chromedp.WindowSize(1200, 900), chromedp.Env("HOME="+t.TempDir()))
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute+2**screenshot)
	ctx, end := chromedp.NewExecAllocator(ctx, options...)
	b := &browser{t: t, close: make([]func(), 1)}
	b.ctx, b.close[0] = chromedp.NewContext(ctx)
	b.listen(b.ctx)
	t.Cleanup(func() {
		for _, closeTab := range slices.Backward(b.close) {
			closeTab()
		}
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

// tab opens another tab.
func (b *browser) tab() context.Context {
	ctx, closeTab := chromedp.NewContext(b.ctx)
	b.close = append(b.close, closeTab)
	b.listen(ctx)
	return ctx
}

// listen takes down what goes wrong in a tab.
func (b *browser) listen(ctx context.Context) {
	problem := func(format string, args ...any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.problems = append(b.problems, fmt.Sprintf(format, args...))
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

// run does something in a tab.
func (b *browser) run(ctx context.Context, actions ...chromedp.Action) {
	b.t.Helper()
	if err := chromedp.Run(ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// until waits until an expression is true in the page.
func until(expression string) chromedp.Action {
	return chromedp.Poll(expression, nil, chromedp.WithPollingMutation(), chromedp.WithPollingTimeout(patience))
}

// shows is an expression: whether a part of the page has a text.
func shows(part, text string) string {
	return fmt.Sprintf("document.getElementById(%q)?.textContent.includes(%q)", part, text)
}

// live waits for the page's first news, from which on it is told of changes.
func live() chromedp.Action {
	return chromedp.Tasks{chromedp.WaitReady("#summary"), until(shows("summary", "live"))}
}

func TestPageInABrowser(t *testing.T) {
	t.Parallel()
	b := browse(t)
	s := startServer(t, withPage)
	c, other := s.session(account), s.session("other")
	b.run(b.ctx, chromedp.Navigate(s.page), live())
	second := b.tab()
	b.run(second, chromedp.Navigate(s.page+"?q=%2F"), live())

	var afternoon string
	b.run(b.ctx, chromedp.Evaluate(`clock({ hour: "2-digit", minute: "2-digit" })(new Date(2026, 0, 2, 15, 4).getTime() / 1000)`, &afternoon))
	if afternoon != "15:04" {
		t.Errorf("the chart shows 15:04 as %q, the tables with 24 hours", afternoon)
	}

	n := 0
	promptly(t, "a lock in its row", time.Second, func() time.Duration {
		n++
		name := fmt.Sprintf("/locks/row%d.", n)
		c.Want(257, "MKD "+name)
		granted := time.Now()
		b.run(b.ctx, until(shows("locks", name)))
		took := time.Since(granted)
		t.Log("in its row after", took)
		return took
	})
	b.run(second, until(shows("locks", "/locks/row1.")))

	for _, name := range []string{"<script>alert(1)<script>", "<img src=x onerror=alert(2)>", "caf\x8e", "\"'onmouseover=alert(3)"} {
		c.Want(257, "MKD /locks/"+name)
	}
	b.run(b.ctx, until(shows("locks", "<script>alert(1)<script>")+"&&"+shows("locks", `caf\x8e`)+"&&"+shows("events", "<img src=x onerror=alert(2)>")))
	var foreign int
	b.run(b.ctx, chromedp.Evaluate(`document.querySelectorAll("main table script, main table img, [onmouseover]").length`, &foreign))
	if foreign != 0 {
		t.Errorf("%d elements are made of names", foreign)
	}

	// A queue that was opened stays open when the page changes.
	other.Want(200, "SITE WAIT 100")
	other.says("MKD /locks/caf\x8e")
	b.run(b.ctx, chromedp.WaitVisible("#locks details summary"), chromedp.Click("#locks details summary"))
	c.Want(257, "MKD /locks/a")
	b.run(b.ctx, until(shows("locks", "/locks/a")+` && [...document.querySelectorAll("#locks details[open] li")].some((e) => e.textContent.includes("other@"))`))

	b.run(b.ctx, chromedp.Navigate(s.page+"login"), chromedp.SendKeys("[name=user]", "boss"), chromedp.SendKeys("[name=password]", password+"\r"), live())
	b.run(b.ctx, chromedp.Click(`//tr[td[text()="/locks/<script>alert(1)<script>"]]//a`), chromedp.WaitVisible("[name=reason]"),
		until(`document.querySelector("main").textContent.includes("/locks/<script>alert(1)<script>")`),
		chromedp.SendKeys("[name=reason]", "it <hangs>"), chromedp.Click("button.danger"), live())
	b.run(b.ctx, until(`!`+shows("locks", "<script>")+"&&"+shows("events", "it <hangs>")))
	c.Want(550, "RMD /locks/<script>alert(1)<script>", "taken away", "broken by boss, it <hangs>")

	var width int
	b.run(b.ctx, chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile), chromedp.Reload(), live(),
		chromedp.Evaluate("document.documentElement.scrollWidth", &width))
	if width > 360 {
		t.Errorf("on a telephone of 360 pixels the page has %d", width)
	}

	b.run(second, emulation.SetScriptExecutionDisabled(true), chromedp.Reload())
	b.run(second, chromedp.WaitVisible(`//td[text()="/locks/a"]`), chromedp.WaitVisible(`//*[@id="events"]//td[text()="/locks/a"]`))
	b.run(second, chromedp.Navigate("about:blank"))
	b.run(b.ctx, chromedp.Navigate("about:blank"))
	s.stop()
}

// TestScreenshotOfThePage makes docs/page.png, if that is asked for.
func TestScreenshotOfThePage(t *testing.T) {
	if *screenshot == 0 {
		t.Skip("-screenshot says how long")
	}
	b := browse(t)
	s := startServer(t, strings.ReplaceAll(withPage, `match = "/locks/**"`, `match = "/locks/**"`+"\nmax_age = \"40s\""))
	b.run(b.ctx, chromedp.Navigate(s.page), live())
	var users sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), *screenshot)
	defer cancel()
	for i, name := range []string{"/phone_lock", "/phone_lock", "/phone_lock", "/locks/nightly-backup", "/locks/nightly-backup", "/locks/stock-berlin", "/locks/stock-paris", "/locks/invoices"} {
		c := s.session([]string{account, "other"}[i%2])
		c.Want(200, "SITE WAIT 3000")
		users.Go(func() { // it works, and rests
			for round := 0; ctx.Err() == nil; round++ {
				r, err := c.Try("MKD " + name)
				if err != nil || r.Code != 257 {
					return
				}
				pause(ctx, time.Duration(4+(7*i+5*round)%11)*time.Second)
				if ctx.Err() == nil {
					_, _ = c.Try("RMD " + name)
				}
				pause(ctx, time.Duration(1+(3*i+7*round)%9)*time.Second)
			}
		})
	}
	c := s.session(account)
	c.stores("/phone.tsv", "555-0100\tAda\n")
	<-ctx.Done()
	var image []byte
	b.run(b.ctx, emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "light"}}),
		chromedp.Reload(), live(), chromedp.WaitVisible("#plot canvas"), chromedp.Evaluate(`document.querySelectorAll("details").forEach((d) => { d.open = true; })`, nil),
		chromedp.Sleep(2*time.Second), chromedp.CaptureScreenshot(&image))
	writeFile(t, "../docs/page.png", image)
	t.Logf("%d bytes", len(image))
	cancel()
	s.kill()
	users.Wait()
}

// pause waits for a time, or for the end of a context.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
