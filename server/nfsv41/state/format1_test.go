package state_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/podnas/podnas/server/nfsv41/state"
)

// All of a handover of format 1 is gone on with: it is one of commit 30851a4, with a grace period and what is uncertain
// added by hand.
func TestFormat1(t *testing.T) {
	w := newWorld(t, state.Limits{})
	left, err := os.ReadFile("testdata/format1.json")
	if err != nil {
		t.Fatal(err)
	}
	p := state.NewReplay(w.config(), decodeCallback)
	if err := p.ApplyFormat1(left, []byte(`[{"client":7,"volume":1,"file":"AQAAAAAAAAA=","owner":"bQ=="}]`)); err != nil {
		t.Fatal(err)
	}
	if want := []state.LockFree{{ClientID: 7, File: file1(1), Owner: "m"}}; !p.Left() || !slices.Equal(p.Notices(), want) {
		t.Errorf("left %t, the notices are %v, want %v", p.Left(), p.Notices(), want)
	}
	if w.State, err = p.State(nil, w.tracking.become, noFile); err != nil {
		t.Fatal(err)
	}
	w.startLog()
	w.ok()
	all := w.WhatIsLeft()
	facts := slices.Concat(all.Facts, all.Waits)
	for _, want := range []string{
		"next stateid 6, in grace true",
		`"holder" may reclaim true by [bc8cc7a5b7d7900c]`,
		`client 6718be3270433b75 of "holder", verifier 0000000000000001, {1 0 node}, since 2023-11-14 22:13:20 +0000 UTC, confirmed true, recorded true, complete true, sequence 1, earlier [{[0 0 0 0 0 0 0 9] 10.0.0.9:700}], minor version 1`,
		`client 6718be3270433b75 was told {ID:[91 15 238 135 195 52 248 114 140 118 245 7 12 251 20 204] Seq:1`,
		`by "x", access 3, deny 0, combos 100, since 2023-11-14 22:13:20 +0000 UTC, seqid 1`,
		`open 2 has lock 5 of "l", seqid 1: [{0 18446744073709551615 true}]`,
		`lock 5 is uncertain true`,
		`open 6 is uncertain true, may come again 100`,
		`MaxOps:8 MaxSlots:4}, back channel true, waiter`,
		`slot 0 of session 5b0fee87c334f8728c76f5070cfb14cc: sequence 1, digest 7, cached true, reply "reply"`,
		`of "unconfirmed", verifier 0000000000000001, {1 0 node}, since 2023-11-14 22:13:20 +0000 UTC, confirmed false`,
		`open 6 of "m" for {5 9 false}`,
	} {
		if !slices.ContainsFunc(facts, func(f string) bool { return strings.Contains(f, want) }) {
			t.Errorf("no %s in\n%s", want, strings.Join(facts, "\n"))
		}
	}
}

// Whatever a handover of format 1 says, it is refused, or keeps the invariants.
func FuzzFormat1(f *testing.F) {
	left, err := os.ReadFile("testdata/format1.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(left, []byte("[{}]"))
	f.Add([]byte(`{"grace":{"left":-1,"owners":[{"owner":"AA==","entries":[1,1]},{"owner":"AA=="}]}}`), []byte(nil))
	f.Fuzz(func(t *testing.T, left, notices []byte) {
		w := newWorld(t, state.Limits{})
		p := state.NewReplay(w.config(), decodeCallback)
		if p.ApplyFormat1(left, notices) != nil {
			return
		}
		s, err := p.State(nil, w.tracking.become, noFile)
		if err != nil {
			return
		}
		w.State = s
		w.startLog()
		w.ok()
	})
}
