package metrics

import "github.com/prometheus/client_golang/prometheus"

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("podnas_"+name, help, labels, nil)
}

// docs/monitoring.md has them all; a test compares.
//
//nolint:gochecknoglobals // constants, if Go had such
var (
	calls    = desc("nfs_calls_total", "Calls of NFS and MOUNT, by procedure and by the status they were answered with.", "procedure", "status")
	duration = desc("nfs_call_duration_seconds", "From when a call was read to when its reply was ready to be sent.", "procedure")
	inFlight = desc("nfs_calls_in_flight", "Calls that are being answered.")
	read     = desc("nfs_read_bytes_total", "Bytes of files that READ gave to clients.")
	written  = desc("nfs_written_bytes_total", "Bytes that WRITE took from clients.")

	connections        = desc("nfs_connections", "Open connections of clients.")
	connectionsTotal   = desc("nfs_connections_total", "Connections that were taken.")
	connectionsRefused = desc("nfs_connections_refused_total", "Connections that were closed at once: there were too many.")
	connectionsClosed  = desc("nfs_connections_closed_total", "Connections that did nothing and were closed to make room for others.")
	rejected           = desc("nfs_rejected_calls_total", "Calls that got an RPC error and no result: not understood, or without a credential.")
	replayed           = desc("nfs_replayed_calls_total", "Calls that a client made again, and that got the first reply once more.")
	throttled          = desc("nfs_throttled_total", "Times that a connection was not read for a while: its calls held too much memory, or were too many.", "reason")

	syncDuration = desc("nfs_sync_duration_seconds", "How long syncs of the disk took, on behalf of clients.")
	syncFailures = desc("nfs_sync_failures_total", "Syncs that failed. Clients are told to send again what was not committed.")

	openFiles          = desc("nfs_open_files", "Files that are kept open between calls. Missing with go-nfs.")
	openFilesLimit     = desc("nfs_open_files_limit", "How many files are kept open at most.")
	openFilesHits      = desc("nfs_open_files_hits_total", "Calls that found their file open.")
	openFilesMisses    = desc("nfs_open_files_misses_total", "Calls that had to open their file.")
	openFilesEvictions = desc("nfs_open_files_evictions_total", "Files that were closed to make room for others.")

	keptHandles       = desc("nfs_kept_handles", "Handles that are remembered of names, so that they are not asked for again. Missing with go-nfs.")
	keptHandlesHits   = desc("nfs_kept_handles_hits_total", "Names whose handle was remembered, when they were looked up or listed.")
	keptHandlesMisses = desc("nfs_kept_handles_misses_total", "Names whose handle had to be asked for.")

	volumeCalls   = desc("volume_calls_total", "Calls on files of a volume, since it was exported.", "volume", "namespace", "claim")
	volumeRead    = desc("volume_read_bytes_total", "Bytes that clients read from a volume.", "volume", "namespace", "claim")
	volumeWritten = desc("volume_written_bytes_total", "Bytes that clients wrote to a volume.", "volume", "namespace", "claim")
	volumeClients = desc("volume_clients", "Clients with calls in a volume that are connected, or were within the last hour.", "volume", "namespace", "claim")

	clientCalls       = desc("client_calls_total", "Calls of a client, by its IP address. Who is away for an hour is counted with \"other\", and so are those beyond 128.", "client")
	clientRead        = desc("client_read_bytes_total", "Bytes that a client read.", "client")
	clientWritten     = desc("client_written_bytes_total", "Bytes that a client wrote.", "client")
	clientConnections = desc("client_connections", "Open connections of a client.", "client")
	clientSeen        = desc("client_last_seen_timestamp_seconds", "When a client made its last call.", "client")
)
