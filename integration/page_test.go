package integration

import (
	"context"
	"flag"
	"fmt"
	"net"
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

// screenshot has TestPageIsAccessibleAndFits write the pictures of the documentation.
var screenshot = flag.Bool("screenshot", false, "write the pictures of the page to docs")

// withPage is the configuration of a server that has a page.
const withPage = "[http]\nlisten = \"127.0.0.1:0\"\n" + defaults

// browser is a headless Chromium.
type browser struct {
	t     *testing.T
	ctx   context.Context // of its first tab
	close []func()        // its tabs; the first one is closed last

	mu       sync.Mutex
	problems []string // of its tabs

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

// listen records the errors of a tab.
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

// run executes actions in a tab.
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

// shows returns an expression that is true if a part of the page has a text.
func shows(part, text string) string {
	return fmt.Sprintf("document.getElementById(%q)?.textContent.includes(%q)", part, text)
}

// live waits until the page receives changes.
func live() chromedp.Action {
	return chromedp.Tasks{chromedp.WaitReady("#summary"), until(shows("live", "live"))}
}

func TestPageInABrowser(t *testing.T) {
	t.Parallel()
	b := browse(t)
	s := startServer(t, withPage)
	c, other := s.session(account), s.session("other")
	b.run(b.ctx, chromedp.Navigate(s.page), live())
	second := b.tab()
	b.run(second, chromedp.Navigate(s.page+"?q=%2F"), live())

	// The tables and the chart use one clock: 24 hours, in the viewer's zone, with UTC in the title.
	var times []string
	b.run(b.ctx, emulation.SetTimezoneOverride("Asia/Kolkata"), chromedp.Evaluate(`(() => {
		const e = document.createElement("p"), today = new Date(new Date().setHours(15, 4, 5, 0));
		e.innerHTML = '<time datetime="2026-01-02T15:04:05Z" title="2026-01-02 15:04:05 UTC"></time>';
		showTimes(e);
		return [clock(today), clock(today, false), e.textContent, e.firstChild.title];
	})()`, &times))
	if want := []string{"15:04:05", "15:04", "01-02 20:34", "2026-01-02 15:04:05 UTC"}; !slices.Equal(times, want) {
		t.Errorf("times are shown as %q, want %q", times, want)
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

	// The first waiting client is shown before the locks. The focus stays on a link when the part around it changes.
	other.Want(200, "SITE WAIT 100")
	other.says("MKD /locks/caf\x8e")
	b.run(b.ctx, until(shows("attention", "other@")), chromedp.Focus("#locks a[href='/lock?name=%2flocks%2fcaf%8e']"))
	c.Want(257, "MKD /locks/a")
	b.run(b.ctx, until(shows("locks", "/locks/a")+` && document.activeElement.textContent === "/locks/caf\\x8e"`))

	b.run(b.ctx, chromedp.Navigate(s.page+"login"), chromedp.SendKeys("[name=user]", "boss"), chromedp.SendKeys("[name=password]", password+"\r"), live())
	b.run(b.ctx, chromedp.Click(`//tr[td/a[.="/locks/<script>alert(1)<script>"]]//a[.="Break"]`), chromedp.WaitVisible("[name=reason]"),
		until(`document.querySelector("main").textContent.includes("/locks/<script>alert(1)<script>")`),
		chromedp.SendKeys("[name=reason]", "it <hangs>"), chromedp.Click("button.danger"), live())
	b.run(b.ctx, until(`!`+shows("locks", "<script>")+"&&"+shows("events", "it <hangs>")))
	c.Want(550, "RMD /locks/<script>alert(1)<script>", "taken away", "broken by boss, it <hangs>")

	b.run(second, emulation.SetScriptExecutionDisabled(true), chromedp.Reload())
	b.run(second, chromedp.WaitVisible(`//*[@id="locks"]//a[.="/locks/a"]`), chromedp.WaitVisible(`//*[@id="events"]//a[.="/locks/a"]`))
	b.run(second, chromedp.Navigate("about:blank"))
	b.run(b.ctx, chromedp.Navigate("about:blank"))
	s.stop()
}

// TestAPageThatIsOpenOverARestartLeadsToTheLogin: a server that has started again does not have the logins of the one before.
func TestAPageThatIsOpenOverARestartLeadsToTheLogin(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "0.0.0.0:0") // a page on other addresses than loopback needs a login
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	_, port := split(l.Addr().String())
	b := browse(t)
	b.tolerated = ":" + port + "/" // requests that the server does not answer
	s := startServer(t, tlsTables(t, t.TempDir())+"[http]\nlisten = \"0.0.0.0:"+port+"\"\n"+defaults)
	b.run(b.ctx, chromedp.Navigate(s.page), chromedp.SendKeys("[name=user]", "boss"), chromedp.SendKeys("[name=password]", password+"\r"), live())
	s.stop()
	s.start()
	b.run(b.ctx, chromedp.WaitVisible("[name=password]"))
	b.run(b.ctx, chromedp.Navigate("about:blank"))
}
