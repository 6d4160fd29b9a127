#!/bin/sh
# Backs up a snapshot of a volume with restic, and forgets old backups. The snapshot is of one moment, so what is backed up is
# consistent, whatever pods do meanwhile.
#
#   VOLUME       what the backups are called: restic's host
#   FOLDER       the snapshot, where a read-only claim of a VolumeSnapshot is mounted; or:
#   SNAPSHOTS    the folder .snapshots of the volume, where it is mounted, of which the latest scheduled snapshot is backed up
#   RESTIC_...   where the repository is, and its password: see restic(1)
#   SNAPSHOT     the name of another snapshot; empty: the latest scheduled one
#   KEEP         which backups to keep
#   FLAGS        more flags of restic backup, such as --force: read all, also what seems unchanged
set -eu

if [ -n "${FOLDER:-}" ]; then
  SNAPSHOTS=$(dirname "$FOLDER") SNAPSHOT=$(basename "$FOLDER")
fi
latest=${SNAPSHOT:-$(ls "$SNAPSHOTS" | grep -E '^(hourly|daily|weekly|monthly|yearly)-[0-9]{4}-[0-9-]+$' | sort -t- -k2 | tail -n 1)}
if [ -z "$latest" ] || [ ! -d "$SNAPSHOTS/$latest" ]; then
  echo "there is no scheduled snapshot, or not the one that was asked for, in $SNAPSHOTS: does the volume have a schedule ('podnas volume show')?" >&2
  exit 1
fi

# The same path each time: so restic finds the backup before, and reads only what has changed. The files of each snapshot have
# other inodes.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
path=/tmp/podnas-backup/$VOLUME
mkdir -p "$(dirname "$path")"
ln -sfn "$SNAPSHOTS/$latest" "$path"
cd "$path"

restic cat config >"$work/config" 2>"$work/why" || restic init || { cat "$work/why" >&2; exit 1; }
restic backup --host "$VOLUME" --tag "$latest" --ignore-inode --ignore-ctime ${FLAGS:-} .
restic forget --host "$VOLUME" --group-by host ${KEEP:---keep-daily 7 --keep-weekly 5 --keep-monthly 12} --prune
restic check
