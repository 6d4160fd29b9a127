# servers.sh: podnas servers for a bench. Sourced; wants $work, $podnas and the
# array $servers, which gets the processes.

# endWithServers: the script's end is that of its servers, and of $work.
endWithServers() {
	servers=()
	trap finish EXIT
}
finish() {
	for pid in "${servers[@]}"; do kill "$pid" 2>/dev/null || true; done
	wait
	rm -rf "$work"
}

# serve ENGINE: a server with two volumes, /fast (sync: "false") and /safe, in
# $work/ENGINE.
serve() {
	local dir=$work/$1
	mkdir -p "$dir/claims" "$dir/root"
	for volume in fast safe; do
		[ $volume = safe ] && sync=true || sync=false
		cat >"$dir/claims/$volume.yaml" <<-YAML
			apiVersion: storage.k8s.io/v1
			kind: StorageClass
			metadata: {name: $volume}
			provisioner: podnas.io/nfs
			parameters: {sync: "$sync", pathPattern: "$volume"}
			---
			apiVersion: v1
			kind: PersistentVolumeClaim
			metadata: {name: $volume}
			spec:
			  storageClassName: $volume
			  accessModes: [ReadWriteMany]
			  resources: {requests: {storage: 2Gi}}
		YAML
	done
	"$podnas" serve --standalone --root="$dir/root" --claims="$dir/claims" --engine="$1" \
		--listen=127.0.0.1:0 --http=127.0.0.1:0 >"$dir/out" 2>"$dir/log" &
	local pid=$!
	servers+=($pid)
	until [ "$(grep -c '^ *mount ' "$dir/out")" = 2 ]; do
		if ! kill -0 $pid 2>/dev/null; then
			echo "the $1 server ended:" >&2
			tail -n 5 "$dir/log" >&2
			exit 1
		fi
		sleep 0.1
	done
}

# target ENGINE VOLUME: what podnas bench takes.
target() {
	echo "127.0.0.1:$(sed -n 's/.*,port=\([0-9]*\).*/\1/p' "$work/$1/out" | head -n 1):/$2"
}
