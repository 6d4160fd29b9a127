package nfsv41

import (
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/podnas/podnas/server/nfsv41/state"
	"github.com/podnas/podnas/server/stats"
)

// events logs and counts what becomes of clients. Lines of each level have a limit of
// their own, so that many clients that come and go hide none that loses something: anybody may come with a new name in
// each call.
type events struct {
	lines map[slog.Level]*stats.Lines

	kinds     [state.GraceEnded]atomic.Uint64 // by state.EventKind
	lostOpens atomic.Uint64
	lostLocks atomic.Uint64

	shared sharedNames
}

func newEvents(log *slog.Logger) *events {
	e := &events{lines: map[slog.Level]*stats.Lines{}}
	for _, level := range []slog.Level{slog.LevelInfo, slog.LevelWarn} {
		e.lines[level] = stats.NewLines(log, stats.LinesBurst, stats.LinesPeriod)
	}
	return e
}

// Totals are how often what has become of clients since the start, for metrics.
type Totals struct {
	Came, Returned, Left, Revoked, Expired, Evicted, NameShared uint64

	LostOpens, LostLocks uint64 // of clients that are gone
}

func (v *events) totals() Totals {
	n := func(k state.EventKind) uint64 { return v.kinds[k].Load() }
	return Totals{
		Came: n(state.ClientCame), Returned: n(state.ClientReturned), Left: n(state.ClientLeft),
		Revoked: n(state.ClientRevoked), Expired: n(state.ClientExpired), Evicted: n(state.ClientEvicted),
		NameShared: n(state.OwnerShared), LostOpens: v.lostOpens.Load(), LostLocks: v.lostLocks.Load(),
	}
}

// tell logs and counts an event. It names nodes, as lists of clients do, and the version in which each is a client of its own.
func (v *events) tell(e state.Event) {
	if int(e.Kind) < len(v.kinds) {
		v.kinds[e.Kind].Add(1)
	}
	name, version := state.Node(e.Owner)
	name = Printable(name)
	client := []any{"client", name}
	if version != "" {
		client = append(client, "version", version)
	}
	address := slices.Concat(client, []any{"address", e.Address})
	lost := slices.Concat(address, []any{"open files lost", e.Opens, "locks lost", e.Locks})
	switch e.Kind {
	case state.OwnerShared:
		v.shared.add(SharedName{Name: name, Address: e.Address, Other: e.Other, Last: time.Now()})
	case state.ClientRevoked, state.ClientExpired, state.ClientEvicted:
		v.lostOpens.Add(uint64(e.Opens))
		v.lostLocks.Add(uint64(e.Locks))
	}
	switch e.Kind {
	case state.ClientCame:
		v.line(slog.LevelInfo, "nfs: a client has come", address)
	case state.ClientReturned:
		v.line(slog.LevelInfo, "nfs: a client has come again, after a restart of its own", lost)
	case state.ClientLeft:
		v.line(slog.LevelInfo, "nfs: a client has left", address)
	case state.ClientRevoked:
		v.line(slog.LevelWarn, "nfs: a client that was silent for longer than a lease is forgotten, as another one wanted what it had", lost)
	case state.ClientExpired:
		v.line(slog.LevelInfo, "nfs: a client that was silent for long is forgotten", lost)
	case state.ClientEvicted:
		v.line(slog.LevelWarn, "nfs: a client was evicted", lost)
	case state.OwnerShared:
		v.line(slog.LevelWarn, "nfs: two nodes have the same host name: one can't mount while the other does, or, from one address, they take each other's locks. Give them different names, or set nfs4_unique_id on them", append(address, "other", e.Other))
	case state.GraceEnded:
		if e.Owner == "" {
			v.line(slog.LevelInfo, "nfs: all clients have reclaimed what they had", nil)
		} else {
			v.line(slog.LevelWarn, "nfs: a client has not reclaimed in time what it had open and locked", client)
		}
	case state.GraceExcused:
		v.line(slog.LevelWarn, "nfs: a client was not waited for, as its node is out of service: what it had open and locked is free", client)
	}
}

func (v *events) line(level slog.Level, message string, attrs []any) {
	v.lines[level].Log(level, message, attrs...)
}

// printableMax bounds what is shown of a name, in bytes.
const printableMax = 128

// Printable returns bytes that a client has chosen, as text in one line.
func Printable(name string) string {
	more := ""
	if len(name) > printableMax {
		end := printableMax
		for end > 0 && !utf8.RuneStart(name[end]) {
			end--
		}
		name, more = name[:end], "..."
	}
	isPlain := utf8.ValidString(name) && !strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) })
	if !isPlain {
		quoted := strconv.Quote(name)
		name = quoted[1 : len(quoted)-1]
	}
	return name + more
}
