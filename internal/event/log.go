package event

import (
	"bytes"
	"context"
	"io"
	"log/slog"
)

// Log returns a sink that writes a line for each event, with one write per call. It calls handler once with the writer for the lines.
// The keys are the same in all lines, see attrs. A failed write to w is ignored.
func Log(w io.Writer, handler func(io.Writer) slog.Handler) Sink {
	ctx := context.Background()
	var lines bytes.Buffer
	to := handler(&lines)
	return func(batch []Event) {
		for _, e := range batch {
			text, level := e.line()
			if !to.Enabled(ctx, level) {
				continue
			}
			// The record has the time of the event, not of the write.
			r := slog.NewRecord(e.Time, level, text, 0)
			r.AddAttrs(e.attrs()...)
			_ = to.Handle(ctx, r) // a write to a buffer does not fail
		}
		_, _ = lines.WriteTo(w)
		lines.Reset()
	}
}

// line returns the message of an event, and its level.
func (e Event) line() (text string, level slog.Level) {
	switch e.Kind {
	case Acquire:
		return "lock acquired", slog.LevelInfo
	case Refuse:
		return "lock refused", slog.LevelDebug
	case Release, Expire, Break:
		if e.Cause == "release" {
			return "lock ended", slog.LevelDebug
		}
		return "lock ended", slog.LevelInfo
	case Job:
		if e.Cause == "two-runs" {
			return "two programs seem to run as one job", slog.LevelWarn
		}
		return "job refused", slog.LevelWarn
	case Protect:
		return "change of a protected file refused", slog.LevelInfo
	case Publish:
		return "upload published", slog.LevelInfo
	case Discard:
		return "upload discarded", slog.LevelWarn
	case Unconfirmed:
		return "upload published, unconfirmed", slog.LevelWarn
	case Download:
		return "file sent", slog.LevelDebug
	case Login:
		return "logged in", slog.LevelInfo
	case LoginFailed:
		return "login failed", slog.LevelWarn
	case Reload:
		if e.Reason != "" {
			return "reload refused, nothing has changed", slog.LevelError
		}
		return "reloaded", slog.LevelInfo
	case Cluster:
		if e.Cause == "suspended" || e.Cause == "deposed" {
			return "cluster: " + e.Cause, slog.LevelWarn
		}
		return "cluster: " + e.Cause, slog.LevelInfo
	}
	return string(e.Kind), slog.LevelInfo
}

// attrs returns the fields that are set. The account comes last, because a client chose it.
func (e Event) attrs() []slog.Attr {
	all := make([]slog.Attr, 0, 8)
	text := func(key, value string) {
		if value != "" {
			all = append(all, slog.String(key, value))
		}
	}
	text("lock", e.Lock)
	if e.Kind != Discard && e.Kind != Cluster { // the reason or the message has it
		text("cause", e.Cause)
	}
	text("holder", e.Holder.String())
	if e.Held > 0 {
		all = append(all, slog.Duration("age", e.Held))
	}
	if e.Token != 0 {
		all = append(all, slog.Uint64("token", e.Token))
	}
	text("by", e.By.String())
	text("path", e.Path)
	if e.Kind == Publish || e.Kind == Discard || e.Kind == Unconfirmed || e.Kind == Download {
		all = append(all, slog.Int64("bytes", e.Bytes))
	}
	text("sha256", e.SHA256)
	if e.Waited > 0 {
		all = append(all, slog.Duration("waited", e.Waited))
	}
	if e.Automatic {
		all = append(all, slog.Bool("automatic", true))
	}
	text("reason", e.Reason)
	text("session", e.Session.String())
	text("remote", e.Remote)
	text("account", e.Account)
	return all
}
