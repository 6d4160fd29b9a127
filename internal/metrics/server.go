package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/server"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/nfsv41"
	"github.com/podnas/podnas/server/stats"
)

// nfs collects the metrics of the NFS server.
type nfs struct {
	server  *server.Server
	exports *exports.Table
	volumes func() []volume.Volume // of the disk
}

// Describe implements prometheus.Collector.
func (n *nfs) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range [...]*prometheus.Desc{
		calls, duration, inFlight, read, written, connections, connectionsTotal, connectionsRefused, connectionsClosed,
		rejected, replayed, throttled, syncDuration, syncFailures,
		openFiles, openFilesLimit, openFilesHits, openFilesMisses, openFilesEvictions,
		keptHandles, keptHandlesHits, keptHandlesMisses, keptAttrsHits,
		indexNames, indexBytes, indexWalks, indexPartial,
		nfs4Clients, nfs4Silent, nfs4Events, nfs4LostOpens, nfs4LostLocks,
		nfs4Sessions, nfs4Opens, nfs4Locks, nfs4LockWaiters, nfs4Grace, nfs4Awaited, nfs4ReplyBytes, nfs4StateLogFailed,
		volumeCalls, volumeRead, volumeWritten, volumeClients,
		clientCalls, clientRead, clientWritten, clientConnections, clientSeen,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (n *nfs) Collect(ch chan<- prometheus.Metric) {
	served := n.server.Stats()
	snap := served.Snapshot()
	o := out(ch)
	for i := range snap.Procedures {
		p := &snap.Procedures[i]
		for _, s := range p.Statuses {
			o.count(calls, s.Count, p.Name, server.StatusName(s.Status))
		}
		if p.Durations.Count > 0 {
			o.histogram(duration, &p.Durations, p.Name)
		}
	}
	o.gauge(inFlight, float64(snap.InFlight))
	o.gauge(connections, float64(snap.Connections.Open))
	o.count(connectionsTotal, snap.Connections.Accepted)
	o.count(connectionsRefused, snap.Connections.Refused)
	o.count(connectionsClosed, snap.Connections.Closed)
	o.count(rejected, snap.Rejected)
	o.count(replayed, snap.Replayed)
	o.count(throttled, snap.MemoryWaits, "memory")
	o.count(throttled, snap.CallWaits, "calls")
	o.clients(snap.Clients)
	o.volumes(n.exports.Volumes(), n.volumes(), served)

	syncs := n.exports.Syncs.Durations.Snapshot()
	o.histogram(syncDuration, &syncs)
	o.count(syncFailures, n.exports.Syncs.Failed.Load())
	caches := n.server.CacheCounts()
	files, handles := caches.Files, caches.Handles
	o.gauge(openFiles, float64(files.Open))
	o.gauge(openFilesLimit, float64(files.Limit))
	o.count(openFilesHits, files.Hits)
	o.count(openFilesMisses, files.Misses)
	o.count(openFilesEvictions, files.Evicted)
	o.gauge(keptHandles, float64(handles.Cached))
	o.count(keptHandlesHits, handles.Hits)
	o.count(keptHandlesMisses, handles.Misses)
	o.count(keptAttrsHits, handles.Attrs)
	o.gauge(indexNames, float64(caches.Index.Names))
	o.gauge(indexBytes, float64(caches.Index.Bytes))
	o.count(indexWalks, caches.Index.Walks)
	o.gauge(indexPartial, float64(caches.Index.Partial))
	if served := n.server.NFS4(); served != nil {
		o.nfs4(served)
	}
}

func (o out) nfs4(served *nfsv41.Server) {
	n, total := served.Counts(), served.Totals()
	for d, value := range map[*prometheus.Desc]int{
		nfs4Clients: n.Clients, nfs4Silent: n.Silent, nfs4Sessions: n.Sessions, nfs4Opens: n.Opens, nfs4Locks: n.Locks,
		nfs4LockWaiters: n.Waiters, nfs4Awaited: n.Awaited, nfs4ReplyBytes: n.ReplyBytes,
	} {
		o.gauge(d, float64(value))
	}
	grace := 0.0
	if n.InGrace {
		grace = 1
	}
	o.gauge(nfs4Grace, grace)
	failed := 0.0
	if served.StateLogFailed() != nil {
		failed = 1
	}
	o.gauge(nfs4StateLogFailed, failed)
	for event, count := range map[string]uint64{
		"came": total.Came, "returned": total.Returned, "left": total.Left, "revoked": total.Revoked,
		"expired": total.Expired, "evicted": total.Evicted, "name-shared": total.NameShared,
	} {
		o.count(nfs4Events, count, event)
	}
	o.count(nfs4LostOpens, total.LostOpens)
	o.count(nfs4LostLocks, total.LostLocks)
}

func (o out) histogram(d *prometheus.Desc, s *stats.Distribution, labels ...string) {
	buckets, below := map[float64]uint64{}, uint64(0)
	for i, bound := range stats.Bounds() {
		below += s.Buckets[i]
		buckets[bound.Seconds()] = below
	}
	o <- prometheus.MustNewConstHistogram(d, s.Count, s.Sum.Seconds(), buckets, labels...)
}

// clients sends the metrics of each client, and the sums of read and written bytes.
// The client without an address has the traffic of all others.
func (o out) clients(clients []stats.ClientTraffic) {
	var all stats.Traffic
	for i := range clients {
		c := &clients[i]
		all.Read += c.Read
		all.Written += c.Written
		name := "other"
		if c.Address.IsValid() {
			name = c.Address.String()
		}
		o.count(clientCalls, c.Calls, name)
		o.count(clientRead, c.Read, name)
		o.count(clientWritten, c.Written, name)
		o.gauge(clientConnections, float64(c.Connections), name)
		if !c.Seen.IsZero() {
			o.gauge(clientSeen, float64(c.Seen.UnixMilli())/1e3, name)
		}
	}
	o.count(read, all.Read)
	o.count(written, all.Written)
}

func (o out) volumes(exported []*exports.Volume, known []volume.Volume, served *stats.Server) {
	names := map[uint64][]string{}
	for i := range known {
		names[known[i].ID] = labelsOf(&known[i])
	}
	for _, v := range exported {
		labels, ok := names[v.ID]
		if !ok {
			continue // it is being created or deleted
		}
		t := v.Served.Traffic()
		o.count(volumeCalls, t.Calls, labels...)
		o.count(volumeRead, t.Read, labels...)
		o.count(volumeWritten, t.Written, labels...)
		o.gauge(volumeClients, float64(len(served.ClientsOf(&v.Served))), labels...)
	}
}
