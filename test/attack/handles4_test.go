//go:build attack

package attack_test

import (
	"os"
	"sync/atomic"

	"github.com/podnas/podnas/nfs/nfs4"
)

// Handles by version 4.1: those that nobody was given, and those of volumes that are not for everybody.
var handle4Attacks = []attack{
	{
		name:  "handles of 4.1 that nobody was given",
		does:  "handles of the tree of volumes, of volumes, directories and files with every bit flipped, cut, made longer, put together of two, and random ones",
		holds: "none is taken, to read, write, look up or get attributes",
		on:    isNative,
		also:  kinds{race, xfs},
		run: func(a *assault) {
			a.volume("prey", "64Mi")
			a.volume("other", "64Mi")
			for _, volume := range []string{"prey", "other"} {
				must(a, os.Mkdir(a.path(volume, "dir"), 0o777))
				must(a, os.WriteFile(a.path(volume, "dir", "file"), []byte("content"), 0o666))
			}
			c := a.ready4(0, "guesser")
			guesses := guessedHandles(a, nfs4.FHSize, c.fh(), c.fh("prey"), c.fh("prey", "dir"), c.fh("other", "dir"), c.fh("prey", "dir", "file"), c.fh("other", "dir", "file"))
			uses := dataUses("file")
			var taken atomic.Int64
			c.each(len(uses)*len(guesses), func(l *lane4, n int) {
				fh, use := guesses[n/len(uses)], uses[n%len(uses)]
				ops := onFH(fh).and(use.ops)
				if status, _ := l.sequenced(ops.n, ops.bytes); status == nfs4.OK && taken.Add(1) < 10 {
					a.Errorf("%s of a handle that nobody was given: %x", use.what, fh)
				}
			})
			a.note("%d handles", len(guesses))
		},
	},
	{
		name:  "handles of others' volumes, by 4.1",
		does:  "uses handles of a volume for other addresses, by its own session and by that of a node with the right to it, and those of one that is read-only, of removed files, and across volumes",
		holds: "each volume's rules hold for its handles",
		on:    isNative,
		also:  kinds{xfs},
		run: func(a *assault) {
			a.volume("prey", "64Mi")
			a.volume("private", "64Mi", "--allowed-clients="+mountedClient)
			a.volume("fixed", "64Mi", "--read-only")
			for _, volume := range []string{"prey", "private", "fixed"} {
				must(a, os.WriteFile(a.path(volume, "file"), []byte(volume), 0o666))
			}
			owner, thief := a.client4From(mountedClient), a.ready4(0, "thief")
			if !owner.introduce("owner") || !owner.createSession() {
				a.Fatal("no session")
			}
			refused := func(c *client4, what string, ops ops4) {
				a.Helper()
				if status, _ := c.sequenced(ops.n, ops.bytes); status == nfs4.OK {
					a.Errorf("%s succeeded", what)
				}
			}
			// A call that is allowed tells that the others were refused for their handles, not for their session.
			allowed := func(c *client4) {
				a.Helper()
				if status, _ := c.sequenced(on("prey").n, on("prey").bytes); status != nfs4.OK {
					a.Errorf("LOOKUP of prey: %v", status)
				}
			}
			private, secret := owner.fh("private"), owner.fh("private", "file")
			root, file, fixed := thief.fh("prey"), thief.fh("prey", "file"), thief.fh("fixed", "file")
			mine := thief.session
			for _, session := range []nfs4.SessionID{mine, owner.session} {
				if thief.session = session; session != mine {
					thief.slot = owner.slot
				}
				for _, use := range append(dataUses("file"), nameUses("file")...) {
					for _, fh := range []nfs4.FH{private, secret} {
						refused(thief, use.what+" in a volume for other addresses", onFH(fh).and(use.ops))
					}
				}
				refused(thief, "LOOKUP of a volume for other addresses", on("private"))
				refused(thief, "LINK out of another volume", onFH(secret).do(nfs4.OpSavefh, nil).and(onFH(root)).name(nfs4.OpLink, "linked"))
				allowed(thief)
			}
			owner.slot = thief.slot
			// One that may use both can't join them.
			refused(owner, "LINK across volumes", onFH(secret).do(nfs4.OpSavefh, nil).and(onFH(root)).name(nfs4.OpLink, "linked"))
			refused(owner, "RENAME across volumes", onFH(private).do(nfs4.OpSavefh, nil).and(onFH(root)).do(nfs4.OpRename, &nfs4.RenameArgs{OldName: []byte("file"), NewName: []byte("moved")}))
			refused(owner, "RENAME into another volume", onFH(root).do(nfs4.OpSavefh, nil).and(onFH(private)).do(nfs4.OpRename, &nfs4.RenameArgs{OldName: []byte("file"), NewName: []byte("moved")}))

			for _, use := range append(dataUses("")[2:], nameUses("file")...) {
				refused(owner, use.what+" in a volume that is read-only", onFH(fixed).and(use.ops))
				refused(owner, use.what+" in a volume that is read-only", onFH(owner.fh("fixed")).and(use.ops))
			}
			gone := on("prey").name(nfs4.OpRemove, "file")
			if status, _ := owner.sequenced(gone.n, gone.bytes); status != nfs4.OK {
				a.Fatalf("REMOVE: %v", status)
			}
			must(a, os.WriteFile(a.path("prey", "file"), []byte("anew"), 0o600))
			for _, use := range dataUses("file") {
				refused(owner, use.what+" of a file that was removed", onFH(file).and(use.ops))
			}
			allowed(owner)
			for _, volume := range []string{"private", "fixed"} {
				if got, err := os.ReadFile(a.path(volume, "file")); err != nil || string(got) != volume {
					a.Errorf("the file in %s: %q, %v", volume, got, err)
				}
			}
		},
	},
}

// use4 is what may be done with a handle.
type use4 struct {
	what string
	ops  ops4
}

// dataUses are of a file or of a directory that has name. The first two change nothing.
func dataUses(name string) []use4 {
	uses := []use4{
		{"GETATTR", ops4{}.do(nfs4.OpGetattr, &nfs4.GetattrArgs{Request: nfs4.BitmapOf(nfs4.AttrFileID)})},
		{"READ", ops4{}.do(nfs4.OpRead, &nfs4.ReadArgs{Count: 10})},
		{"WRITE", ops4{}.do(nfs4.OpWrite, &nfs4.WriteArgs{Data: []byte("x")})},
		{"SETATTR", ops4{}.do(nfs4.OpSetattr, &nfs4.SetattrArgs{Attr: mode4(0o700)})},
	}
	if name != "" {
		uses = append(uses, use4{"LOOKUP", ops4{}.name(nfs4.OpLookup, name)})
	}
	return uses
}

// nameUses change a directory that has name, or a file.
func nameUses(name string) []use4 {
	return []use4{
		{"CREATE", mkdir4("made")},
		{"OPEN", open4(name, nfs4.Unchecked)},
		{"OPEN of the handle", ops4{}.do(nfs4.OpOpen, &nfs4.OpenArgs{ShareAccess: nfs4.ShareAccessBoth, Owner: nfs4.StateOwner{Owner: []byte("x")}, Claim: nfs4.ClaimFH})},
		{"REMOVE", ops4{}.name(nfs4.OpRemove, name)},
		{"RENAME", ops4{}.do(nfs4.OpSavefh, nil).do(nfs4.OpRename, &nfs4.RenameArgs{OldName: []byte(name), NewName: []byte("renamed")})},
	}
}

// fh is the handle of a file.
func (c *client4) fh(path ...string) nfs4.FH {
	c.a.Helper()
	ops := on(path...).do(nfs4.OpGetfh, nil)
	status, d := c.sequenced(ops.n, ops.bytes)
	var res nfs4.GetfhRes
	if status == nfs4.OK {
		result(&d, len(path))
		res.Decode(&d)
	}
	if status != nfs4.OK || d.Err() != nil {
		c.a.Fatalf("handle of %q: %v, %v", path, status, d.Err())
	}
	return res.FH
}
