package status

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"
)

// eventsMax is how many events are kept.
const eventsMax = 100

// Event is a line of podnas's log.
type Event struct {
	Time    time.Time
	Level   slog.Level
	Message string
	Details string // the attributes, as key=value key="two words"
	Times   int    // how often it was logged in a row

	number uint64   // of all events, in their order
	about  []string // the volumes, paths and claims that it names
}

// Events keeps the latest lines of podnas's log. The zero Events is ready for use.
type Events struct {
	mu sync.Mutex
	// +checklocks:mu
	ring []Event // the oldest first
	// +checklocks:mu
	all uint64 // how many there have been
}

// Recent returns the events, latest first.
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
	e.all++
	event.number = e.all
	if len(e.ring) == eventsMax {
		oldest := e.oldestLocked()
		e.ring = slices.Delete(e.ring, oldest, oldest+1)
	}
	e.ring = append(e.ring, event)
}

// oldestLocked returns the index of the event to remove for a new one: the oldest information,
// or the oldest warning or error, whichever kind has more events. So many mounts don't
// remove all errors.
//
// +checklocks:e.mu
func (e *Events) oldestLocked() int {
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

// Handler returns a handler that passes all records to next, and keeps those of
// slog.LevelInfo and above.
func (e *Events) Handler(next slog.Handler) slog.Handler { return &handler{next: next, events: e} }

type handler struct {
	next   slog.Handler
	events *Events
	prefix string // of keys
	attrs  string // of With
	about  []string
}

// Enabled implements slog.Handler. Events are kept even if the log's level is higher.
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

// appendAbout appends the volume, path or claim that an attribute names, without the
// leading slash of an exported path. It does not write to the given slice.
func appendAbout(about []string, a slog.Attr) []string {
	switch a.Key {
	case "volume", "path", "claim":
		return append(slices.Clip(about), strings.TrimPrefix(a.Value.Resolve().String(), "/"))
	}
	return about
}

// detailMax limits each value, in bytes before it is quoted. The log has the rest, for example of a stack.
const detailMax = 300

func (h *handler) write(b *strings.Builder, a slog.Attr) {
	if b.Len() > 0 {
		b.WriteByte(' ')
	}
	value, more := a.Value.Resolve().String(), ""
	if len(value) > detailMax {
		value, more = strings.ToValidUTF8(value[:detailMax], ""), "..."
	}
	b.WriteString(h.prefix + a.Key + "=" + inOneWord(value) + more)
}

// inOneWord quotes a value that is not one plain word, as the log does: clients choose some, and could write other attributes into them.
func inOneWord(value string) string {
	isOdd := func(r rune) bool {
		return r == ' ' || r == '=' || r == '"' || r == utf8.RuneError || !unicode.IsPrint(r)
	}
	if value == "" || strings.ContainsFunc(value, isOdd) {
		return strconv.Quote(value)
	}
	return value
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
