package state

import "testing"

// A client has an alias of a file from the first open by it to the last CLOSE, whatever process it is.
func TestAlias(t *testing.T) {
	w := newWorld(t, Limits{})
	one, other := w.ready("one", 1), w.ready("other", 1)
	open := func(n *node, owner, alias string) Stateid {
		t.Helper()
		id, _, e := w.Open(n.c, OpenArgs{Owner: []byte(owner), File: file1(1), Access: Both, Alias: []byte(alias)})
		w.want(e, OK)
		w.ok()
		return id
	}
	wants := func(when, ofOne, ofOther string) {
		t.Helper()
		w.ok()
		if a, b := w.Alias(one.c, file1(1)), w.Alias(other.c, file1(1)); a != ofOne || b != ofOther {
			t.Errorf("%s, the aliases are %q and %q, want %q and %q", when, a, b, ofOne, ofOther)
		}
		if has, want := w.HasAliases(), ofOne+ofOther != ""; has != want {
			t.Errorf("%s, HasAliases is %t, want %t", when, has, want)
		}
	}
	open(other, "o", "")
	wants("before", "", "")
	first := open(one, "first", "old")
	wants("by its alias", "old", "")
	second := open(one, "second", "")
	w.want(w.Close(one.c, first, file1(1)), OK)
	wants("with another open", "old", "")
	again := func(when string) {
		t.Helper()
		one.c, other.c = w.clients[one.c.ID()], w.clients[other.c.ID()]
		wants(when, "old", "")
	}
	if err := w.restore(w.save(), noFile); err != nil {
		t.Fatal(err)
	}
	again("in the next process")
	w.dies()
	again("in the one that goes on with the log")
	w.want(w.Close(one.c, second, file1(1)), OK)
	wants("closed", "", "")
	id := open(other, "new", "older")
	wants("of the other", "", "older")
	w.want(w.Close(other.c, id, file1(1)), OK)
	wants("with an open that was there before", "", "")
}
