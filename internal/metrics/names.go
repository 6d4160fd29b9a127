package metrics

import "github.com/prometheus/client_golang/prometheus"

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("podnas_"+name, help, labels, nil)
}

// docs/metrics.md lists all of them; a test compares.
//
//nolint:gochecknoglobals // constants, if Go had such
var (
	volumes          = desc("volumes", "Volumes, by state.", "state")
	volumeSize       = desc("volume_size_bytes", "Size of a volume.", "volume", "namespace", "claim")
	volumeUsed       = desc("volume_used_bytes", "Disk usage of a volume. Missing if not counted.", "volume", "namespace", "claim")
	volumeFiles      = desc("volume_files", "Files, directories and everything else in a volume. Missing if not counted.", "volume", "namespace", "claim")
	volumeFilesLimit = desc("volume_files_limit", "Maximum number of files of a volume. Missing if it is not enforced.", "volume", "namespace", "claim")

	volumeSnapshots     = desc("volume_snapshots", "Complete snapshots of a volume.", "volume", "namespace", "claim")
	volumeSnapshotBytes = desc("volume_snapshot_bytes", "What the snapshots of a volume hold at most, as if they shared nothing with each other and the volume.", "volume", "namespace", "claim")
	volumeScheduled     = desc("volume_snapshot_last_success_timestamp_seconds", "Moment of the latest snapshot that a volume's schedule has taken. Missing before the first, and without a schedule.", "volume", "namespace", "claim")
	volumeScheduleFails = desc("volume_snapshot_schedule_failing", "1 if the last scheduled snapshot of a volume could not be taken, or is late; else 0. Missing without a schedule.", "volume", "namespace", "claim")

	diskSize           = desc("disk_size_bytes", "Size of the disk.")
	diskFree           = desc("disk_free_bytes", "Free space on the disk.")
	diskPromised       = desc("disk_promised_bytes", "Sum of the sizes of all volumes, archived and retained ones too, and of what is promised for snapshots.")
	diskInodes         = desc("disk_inodes", "Total inodes of the disk. Missing if the file system has no limit.")
	diskInodesFree     = desc("disk_inodes_free", "Free inodes of the disk.")
	diskInodesPromised = desc("disk_promised_inodes", "Sum of the file limits of all volumes, archived and retained ones too.")
	diskUnanswered     = desc("disk_unanswered_seconds", "How long the disk has not answered the queries for metrics, otherwise 0. The metrics of the disk and of volumes' usage are missing meanwhile.")

	diskHeartbeat = desc("disk_heartbeat_age_seconds", "Time since the beginning of the last write that the disk has confirmed. Up to about 1 is normal, from 5 on clients get no answers, from 30 on their connections are closed.")

	operations = desc("volume_operations_total", "Completed operations on volumes: create, resize, copy, snapshot, delete, and empty (removal of a deleted volume's files).", "operation")
	failures   = desc("volume_operation_failures_total", "Failed operations on volumes. Most are retried, and each failure counts.", "operation")
	snapshots  = desc("snapshots", "Complete snapshots of all volumes, deleted volumes too.")
	given      = desc("snapshots_deleted_for_room_total", "Scheduled snapshots that were deleted because the disk filled up.")
	copied     = desc("volume_copied_bytes", "Bytes copied so far by a running copy.", "volume")
	trash      = desc("trash_volumes", "Deleted volumes whose files are not removed yet.")
	trashBytes = desc("trash_bytes", "Disk usage of deleted volumes. Missing if the kernel does not count it.")

	reconciled  = desc("reconcile_last_success_timestamp_seconds", "Time of the last comparison of the disk with the cluster.")
	standsAside = desc("stands_aside", "1 if this podnas provisions no claims, because another one has its provisioner name.")

	standbyReady = desc("standby_ready", "1 if another podnas could take over the shared disk, else 0.")

	findingsCount = desc("findings", "Findings, as shown by podnas doctor.", "source", "severity")

	calls    = desc("nfs_calls_total", "NFS and MOUNT calls, by procedure and status.", "procedure", "status")
	duration = desc("nfs_call_duration_seconds", "Time from reading a call until its reply is ready to be sent.", "procedure")
	inFlight = desc("nfs_calls_in_flight", "Calls in flight.")
	read     = desc("nfs_read_bytes_total", "Bytes of file data returned by READ.")
	written  = desc("nfs_written_bytes_total", "Bytes of file data accepted by WRITE.")

	connections        = desc("nfs_connections", "Open client connections.")
	connectionsTotal   = desc("nfs_connections_total", "Accepted connections.")
	connectionsRefused = desc("nfs_connections_refused_total", "Connections that were closed at once, because there were too many.")
	connectionsClosed  = desc("nfs_connections_closed_total", "Idle or stuck connections that were closed for new ones.")
	rejected           = desc("nfs_rejected_calls_total", "Calls answered with an RPC error: malformed, or without a credential.")
	replayed           = desc("nfs_replayed_calls_total", "Retransmitted calls, answered from the replay cache.")
	throttled          = desc("nfs_throttled_total", "How often the server paused reading from a connection, because its calls held too much memory or were too many.", "reason")

	syncDuration = desc("nfs_sync_duration_seconds", "Duration of syncs to the disk for clients.")
	syncFailures = desc("nfs_sync_failures_total", "Failed syncs. Clients send uncommitted data again.")

	openFiles          = desc("nfs_open_files", "Files kept open between calls. Missing with go-nfs.")
	openFilesLimit     = desc("nfs_open_files_limit", "Maximum number of files kept open.")
	openFilesHits      = desc("nfs_open_files_hits_total", "Calls that found their file open.")
	openFilesMisses    = desc("nfs_open_files_misses_total", "Calls that had to open their file.")
	openFilesEvictions = desc("nfs_open_files_evictions_total", "Files that were closed for others.")

	indexNames   = desc("nfs_index_names", "Names in the indexes by which files are found; 0 where the kernel's handles are used.")
	indexBytes   = desc("nfs_index_bytes", "Memory of the indexes, in bytes.")
	indexWalks   = desc("nfs_index_walks_total", "Walks of volumes for the indexes.")
	indexPartial = desc("nfs_index_partial", "Volumes whose index may lack files, so that clients may be asked to wait.")

	keptHandles       = desc("nfs_kept_handles", "Cached handles of names. Missing with go-nfs.")
	keptHandlesHits   = desc("nfs_kept_handles_hits_total", "Lookups and listed names whose handle was cached.")
	keptHandlesMisses = desc("nfs_kept_handles_misses_total", "Lookups and listed names whose handle was not cached.")
	keptAttrsHits     = desc("nfs_kept_attributes_hits_total", "Files in listings, GETATTR, ACCESS and READ whose attributes were remembered. Missing with go-nfs.")

	nfs4Clients        = desc("nfs4_clients", "Clients of NFSv4: nodes, each for all its mounts. This and the other podnas_nfs4 metrics are missing with go-nfs and with --nfs4=false.")
	nfs4Silent         = desc("nfs4_clients_silent", "Clients whose lease has run out. They keep what nobody else wants.")
	nfs4Events         = desc("nfs4_client_events_total", "What became of clients: came, returned (after a restart of their own), left, revoked (their lease had run out, and another client wanted what they had), expired (silent for a day), evicted (podnas client evict), name-shared (two nodes have one host name). A node with mounts of 4.1 and of 4.2 counts for each.", "event")
	nfs4LostOpens      = desc("nfs4_lost_opens_total", "Open files of clients that were revoked, expired or evicted.")
	nfs4LostLocks      = desc("nfs4_lost_locks_total", "Locked ranges of clients that were revoked, expired or evicted.")
	nfs4Sessions       = desc("nfs4_sessions", "Sessions of clients.")
	nfs4Opens          = desc("nfs4_opens", "Files that clients have open, once for each owner.")
	nfs4Locks          = desc("nfs4_locks", "Ranges that clients have locked.")
	nfs4LockWaiters    = desc("nfs4_lock_waiters", "Locks that clients wait for.")
	nfs4Grace          = desc("nfs4_grace", "1 in the grace period, in which nobody can open or lock anything but what he had before a crash; else 0.")
	nfs4Awaited        = desc("nfs4_grace_awaited_clients", "Clients that have not reclaimed what they had before the crash: nodes.")
	nfs4ReplyBytes     = desc("nfs4_reply_cache_bytes", "Bytes of replies that sessions may keep for retransmissions.")
	nfs4StateLogFailed = desc("nfs4_state_log_failed", "1 if the log of --state-log could not be written, so that clients have to reclaim what they have if podnas dies; else 0.")

	volumeCalls   = desc("volume_calls_total", "Calls on files of a volume since it was exported.", "volume", "namespace", "claim")
	volumeRead    = desc("volume_read_bytes_total", "Bytes that clients read from a volume.", "volume", "namespace", "claim")
	volumeWritten = desc("volume_written_bytes_total", "Bytes that clients wrote to a volume.", "volume", "namespace", "claim")
	volumeClients = desc("volume_clients", "Clients that use a volume, or used it within the last hour.", "volume", "namespace", "claim")

	clientCalls       = desc("client_calls_total", "Calls of a client, by its IP address. Clients beyond 128, and clients without a call for an hour, are counted as \"other\".", "client")
	clientRead        = desc("client_read_bytes_total", "Bytes that a client read.", "client")
	clientWritten     = desc("client_written_bytes_total", "Bytes that a client wrote.", "client")
	clientConnections = desc("client_connections", "Open connections of a client.", "client")
	clientSeen        = desc("client_last_seen_timestamp_seconds", "Time of a client's last call.", "client")
)
