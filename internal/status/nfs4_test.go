package status

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/podnas/podnas/internal/process"
	"github.com/podnas/podnas/internal/volume"
)

// The page has the clients of version 4.1, what they hold, and why nobody else gets it.
func TestNFS4(t *testing.T) {
	specs := []volume.Spec{{Name: "v", Size: 1 << 20}}
	without := newStatus(t, specs, nil)
	if strings.Contains(body(t, without), "NFSv4.1") || strings.Contains(get(t, without, "GET", "/volume/v").Body.String(), "NFSv4.1") {
		t.Error("a page without version 4.1 tells of it")
	}
	all := process.NFS4{}
	s := newStatus(t, specs, func(c *Config, _ exporter) { c.NFS4 = func() process.NFS4 { return all } })
	wants(t, body(t, s), "Clients of NFSv4", "There is none. Volumes of version 3 have none.")

	now := time.Now()
	for i := range clientsMax + 2 {
		all.Clients = append(all.Clients, process.Client{
			ID: fmt.Sprintf("c11e47%d", i), Name: fmt.Sprintf("node<%d>", i), Address: "10.0.0.1:700", Version: "4.1", State: process.ClientSilent,
			Since: now.Add(-2 * time.Hour), Seen: now.Add(-90 * time.Second), Opens: 12, Locks: 34,
		})
	}
	for i := range holdingsMax {
		all.Opens = append(all.Opens, process.Open{
			Holder: process.Holder{Volume: "v", File: "secret", Inode: uint64(1000 + i), ClientID: "c11e470", Client: "node<0>", Address: "10.0.0.1:700", Since: now.Add(-time.Hour)}, Access: "read",
		})
	}
	all.Locks = []process.Lock{{Holder: all.Opens[0].Holder, Type: "write", Offset: 5, Length: 5, Waiting: true}}
	all.Grace = &process.Grace{Until: now.Add(20 * time.Second), Awaited: []string{"node<7>"}}
	s = newStatus(t, specs, func(c *Config, _ exporter) { c.NFS4 = func() process.NFS4 { return all } })
	wants(t, body(t, s), "Grace period", "it waits for node&lt;7&gt;", "node&lt;0&gt;", "silent: it keeps what nobody else wants", "2 h", "1 min ago", ">12<", ">34<",
		"and 2 more: podnas client list has all", "Open files and locks", "inode 1000", `href="/volume/v"`, "open read", "waits for lock write 5 to 9", "and more: podnas client list -o json")
	wants(t, get(t, s, "GET", "/volume/v").Body.String(), "Open files and locks", "inode 1098", "waits for lock write 5 to 9", "Grace period")
	for _, path := range []string{"/", "/volume/v"} {
		page := get(t, s, "GET", path).Body.String()
		if strings.Contains(page, "secret") {
			t.Errorf("%s has the name of a file", path)
		}
		if strings.Contains(page, "c11e47") {
			t.Errorf("%s has client IDs", path)
		}
	}
}
