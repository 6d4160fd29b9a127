//go:build attack

package attack_test

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
)

var identityAttacks = []attack{
	{
		name:  "identities mixed on every connection",
		does:  "on each of 4 connections calls of 50 users follow each other, 128 under way: each makes files and uses those of others",
		holds: "each file has the owner and group that asked for it, and nobody uses another's",
		on:    func(s setup) bool { return s.engine == "native" },
		also:  kinds{race},
		run: func(a *assault) {
			const users = 50
			a.volume("prey", "256Mi", "--sync=false")
			must(a, os.Chmod(a.path("prey"), 0o1777|os.ModeSticky))
			c, root := a.client("prey")
			cred := func(user int) rpc.Auth {
				return caller(uint32(1000+user), uint32(2000+user), uint32(3000+user))
			}
			var private, shared [users]nfs3.FH // a file of the user's, and one of his group's
			for i := range private {
				private[i] = a.create(c, root, fmt.Sprint("private-", i), nfs3.Sattr{
					Mode: nfs3.SetUint32{Set: true, Value: 0o600}, UID: nfs3.SetUint32{Set: true, Value: uint32(1000 + i)},
				})
				shared[i] = a.create(c, root, fmt.Sprint("shared-", i), nfs3.Sattr{
					Mode: nfs3.SetUint32{Set: true, Value: 0o060}, GID: nfs3.SetUint32{Set: true, Value: uint32(3000 + i)},
				})
			}
			var calls, wrong atomic.Int64
			a.beside(func() {
				until := time.Now().Add(2 * a.window)
				var wg sync.WaitGroup
				for i := range 4 {
					conn := a.conn(i % 2)
					// The call with a number: who, what, whose. The same for who makes it and who
					// looks at the answer.
					seed := a.rng.IntN(1 << 20)
					choose := func(j int) (user, what, whose int) {
						n := (j + seed) * 2654435761 >> 7
						user, what, whose = n%users, n/users%3, n/(3*users)%users
						if n/(3*users*users)%2 == 0 {
							whose = user
						}
						return user, what, whose
					}
					wg.Go(func() {
						_ = flood(conn, 128, func(j int) (rpc.Auth, uint32, rpc.Args, bool) {
							user, what, whose := choose(j)
							more := time.Now().Before(until)
							switch what {
							case 0:
								return cred(user), nfs3.ProcCreate, &nfs3.CreateArgs{Where: where(root, fmt.Sprintf("of-%d-%d-%d", user, i, j%3000))}, more
							case 1:
								return cred(user), nfs3.ProcRead, &nfs3.ReadArgs{File: private[whose], Count: 1}, more
							}
							return cred(user), nfs3.ProcWrite, &nfs3.WriteArgs{File: shared[whose], Count: 1, Data: []byte{1}}, more
						}, func(j int, status nfs3.Status) {
							calls.Add(1)
							user, what, whose := choose(j)
							if may := user == whose; what != 0 && (status == nfs3.OK) != may {
								wrong.Add(1)
								a.Errorf("user %d, file of %d, call %d: %v", user, whose, what, status)
							}
						})
					})
				}
				wg.Wait()
			})
			entries, err := os.ReadDir(a.path("prey"))
			must(a, err)
			files := 0
			for _, e := range entries {
				if !strings.HasPrefix(e.Name(), "of-") {
					continue
				}
				files++
				var user, i, j int
				_, err := fmt.Sscanf(e.Name(), "of-%d-%d-%d", &user, &i, &j)
				must(a, err)
				info, err := e.Info()
				must(a, err)
				if st := info.Sys().(*syscall.Stat_t); st.Uid != uint32(1000+user) || st.Gid != uint32(2000+user) {
					a.Errorf("%s belongs to %d:%d", e.Name(), st.Uid, st.Gid)
				}
			}
			a.note("%d calls, %d files, %d wrong", calls.Load(), files, wrong.Load())
		},
	},
}
