package main

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/server"
)

// Version 4.1 is served unless somebody says otherwise, and never with go-nfs, which nobody has
// to know of.
func TestServesVersion4(t *testing.T) {
	for _, tt := range []struct {
		name, engine string
		flags        []string
		served       bool
	}{
		{"by default", server.EngineNative, nil, true},
		{"turned off", server.EngineNative, []string{"--nfs4=false"}, false},
		{"with go-nfs", server.EngineGoNFS, nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.engine == server.EngineNative && os.Geteuid() != 0 {
				t.Skip("the native engine needs root")
			}
			flags := append([]string{"--root=" + t.TempDir(), "--engine=" + tt.engine, "--http=127.0.0.1:0"}, tt.flags...)
			log, cancel, ended := serving(t, flags...)
			defer func() {
				cancel()
				mustDo(t, <-ended)
			}()
			client, err := rpc.Dial(t.Context(), waitForAddress(t, log))
			mustDo(t, err)
			defer client.Close()
			_, err = client.Call(t.Context(), nfs4.Program, nfs4.Version, nfs4.ProcNull, nil)
			var refused *rpc.RPCError
			switch {
			case tt.served && err != nil:
				t.Errorf("NULL of version 4: %v", err)
			case !tt.served && (!errors.As(err, &refused) || refused.Accept != rpc.ProgMismatch):
				t.Errorf("NULL of version 4: %v, want PROG_MISMATCH", err)
			}
			if said := strings.Contains(log.String(), `versions="3, 4.1, 4.2"`); said != tt.served {
				t.Errorf("the log says that 4.1 is served: %v; log: %s", said, log)
			}
			if strings.Contains(log.String(), "NFSv4") {
				t.Errorf("the log has more about version 4 than nobody asked for: %s", log)
			}
		})
	}
}
