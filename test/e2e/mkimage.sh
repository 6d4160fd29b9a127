#!/bin/bash
# mkimage.sh: pack a folder as a container image of one layer, without a
# container engine (the archive is what "docker save" writes).
#
# usage: mkimage.sh [-e] NAME:TAG FOLDER OUT.tar COMMAND [ARGUMENT...]
#
# With -e the command is the image's entry point: a pod's args are added to it.
set -euo pipefail
kind=Cmd
[ "$1" != -e ] || { kind=Entrypoint && shift; }
name=$1 folder=$2 out=$3
shift 3
work=$(mktemp -d "${TMPDIR:-/tmp}/podnas-image.XXXXXX")
trap 'rm -rf "$work"' EXIT

tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -C "$folder" -cf "$work/layer.tar" .
layer=$(sha256sum <"$work/layer.tar")
case $(uname -m) in x86_64) arch=amd64 ;; aarch64) arch=arm64 ;; *) arch=$(uname -m) ;; esac
cmd=$(printf '"%s",' "$@")
cat >"$work/config.json" <<C
{"architecture": "$arch", "os": "linux",
 "config": {"Env": ["PATH=/bin"], "$kind": [${cmd%,}]},
 "rootfs": {"type": "layers", "diff_ids": ["sha256:${layer%% *}"]},
 "history": [{"created": "1970-01-01T00:00:00Z"}]}
C
cat >"$work/manifest.json" <<M
[{"Config": "config.json", "RepoTags": ["$name"], "Layers": ["layer.tar"]}]
M
tar -C "$work" -cf "$out" manifest.json config.json layer.tar
