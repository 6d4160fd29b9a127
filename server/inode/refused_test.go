package inode_test

import (
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/locate"
)

// What promises who callers are is not served as somebody else.
func TestOnlyRefuses(t *testing.T) {
	ordinary, root, nobody := &actas.Only{UID: 1000, GID: 100}, &actas.Only{Overrides: true}, &actas.Only{UID: 65534, GID: 65534}
	for _, tt := range []struct {
		name    string
		only    *actas.Only
		options exports.Options
		refused string
	}{
		{"who can act as anybody", nil, exports.Options{AllSquash: true, AnonUID: 1}, ""},
		{"nothing said", ordinary, exports.Options{}, ""},
		{"other options", ordinary, exports.Options{ReadOnly: true, PrivilegedPorts: true}, ""},
		{"all are the only user", ordinary, exports.Options{AllSquash: true, AnonUID: 1000, AnonGID: 100}, ""},
		{"all are the only user, of any group", ordinary, exports.Options{AllSquash: true, AnonUID: 1000}, ""},
		{"all are nobody, who is the only user", nobody, exports.Options{AllSquash: true}, ""},
		{"all are another user", ordinary, exports.Options{AllSquash: true, AnonUID: 1001, AnonGID: 100}, "anonUid 1000"},
		{"all are of another group", ordinary, exports.Options{AllSquash: true, AnonUID: 1000, AnonGID: 1}, "anonGid 100"},
		{"all are nobody", ordinary, exports.Options{AllSquash: true}, "allSquash"},
		{"root is another user", ordinary, exports.Options{RootSquash: true, AnonUID: 1000}, "none of rootSquash"},
		{"the anonymous user has a number", ordinary, exports.Options{AnonUID: 7}, "anonUid"},
		{"the only user is root", root, exports.Options{}, "SETUID and SETGID"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.only.Refuses(tt.options.Squash())
			if (err == nil) != (tt.refused == "") || err != nil && !strings.Contains(err.Error(), tt.refused) {
				t.Errorf("%v, want %q", err, tt.refused)
			}
			// No client uses what is refused, not by a handle of before either.
			var log strings.Builder
			table := &exports.Table{Only: tt.only, Log: slog.New(slog.NewTextHandler(&log, nil))}
			mustDo(t, table.Export(exports.Exported{ID: 1, Path: "/v", Dir: t.TempDir(), Options: tt.options}))
			defer table.Remove(1)
			key := locate.NewKey(make([]byte, 32))
			o := inode.NewOpener(table, key, slog.New(slog.DiscardHandler))
			defer o.Close()
			v, _ := table.ByID(1)
			client := netip.MustParseAddr("192.0.2.1")
			f, openErr := o.Open(client, key.Handle(1, *v.Files.RootID()), inode.UseAttr)
			if f != nil {
				f.Close()
			}
			if refused := errors.Is(openErr, unix.EACCES); refused != (err != nil) || v.Allows(client) == refused {
				t.Errorf("opened: %v", openErr)
			}
			if logged := strings.Contains(log.String(), "no client may use a volume"); logged != (err != nil) {
				t.Errorf("log: %s", log.String())
			}
		})
	}
}
