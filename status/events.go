package status

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

// eventsMax is how many events are kept.
const eventsMax = 100

// Event is a line of podnas's log.
type Event struct {
	Time    time.Time
	Level   slog.Level
	Message string
	Details string // what is said besides, as "key=value key=value"
	Times   int    // how often it was said in a row

	about []string // the volumes, paths and claims that it names
}

// Events keeps the latest of what podnas says: its log has a line for each thing
// that matters. The zero Events is ready for use.
type Events struct {
	mu   sync.Mutex
	ring []Event // the oldest first
}

// Recent lists the events, latest first.
func (e *Events) Recent() []Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	recent := slices.Clone(e.ring)
	slices.Reverse(recent)
	return recent
}

func (e *Events) add(event Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := len(e.ring); n > 0 {
		if last := &e.ring[n-1]; last.Message == event.Message && last.Details == event.Details {
			last.Time = event.Time
			last.Times++
			return
		}
	}
	event.Times = 1
	if len(e.ring) == eventsMax {
		oldest := e.oldest()
		e.ring = slices.Delete(e.ring, oldest, oldest+1)
	}
	e.ring = append(e.ring, event)
}

// oldest is the event that gives way to the next: the oldest of those for
// information or of the others, of which there are more. So mounts don't push out
// what went wrong. The caller holds e.mu.
func (e *Events) oldest() int {
	isInfo := func(event Event) bool { return event.Level < slog.LevelWarn }
	infos := 0
	for i := range e.ring {
		if isInfo(e.ring[i]) {
			infos++
		}
	}
	most := infos > eventsMax/2
	return slices.IndexFunc(e.ring, func(event Event) bool { return isInfo(event) == most })
}

// Handler is a log's handler that keeps what passes through it to another. What is
// below slog.LevelInfo is not kept.
func (e *Events) Handler(next slog.Handler) slog.Handler { return &handler{next: next, events: e} }

type handler struct {
	next   slog.Handler
	events *Events
	prefix string // of keys
	attrs  string // of With
	about  []string
}

// Enabled implements slog.Handler. What the log leaves out is kept all the same.
func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || h.next.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo {
		var b strings.Builder
		b.WriteString(h.attrs)
		about := h.about
		r.Attrs(func(a slog.Attr) bool {
			h.write(&b, a)
			about = appendAbout(about, a)
			return true
		})
		h.events.add(Event{Time: r.Time, Level: r.Level, Message: r.Message, Details: b.String(), about: about})
	}
	if !h.next.Enabled(ctx, r.Level) {
		return nil
	}
	return h.next.Handle(ctx, r)
}

// appendAbout notes what an attribute names, without the slash that clients put before
// a path. The slice that is given is not written to.
func appendAbout(about []string, a slog.Attr) []string {
	switch a.Key {
	case "volume", "path", "claim":
		return append(slices.Clip(about), strings.TrimPrefix(a.Value.Resolve().String(), "/"))
	}
	return about
}

// detailMax bounds one value: a stack, for example, is for the log.
const detailMax = 300

func (h *handler) write(b *strings.Builder, a slog.Attr) {
	if b.Len() > 0 {
		b.WriteByte(' ')
	}
	value := a.Value.Resolve().String()
	if len(value) > detailMax {
		value = strings.ToValidUTF8(value[:detailMax], "") + "..."
	}
	b.WriteString(h.prefix + a.Key + "=" + value)
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := *h
	with.next = h.next.WithAttrs(attrs)
	var b strings.Builder
	b.WriteString(h.attrs)
	for _, a := range attrs {
		h.write(&b, a)
		with.about = appendAbout(with.about, a)
	}
	with.attrs = b.String()
	return &with
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	with := *h
	with.next = h.next.WithGroup(name)
	with.prefix = h.prefix + name + "."
	return &with
}
