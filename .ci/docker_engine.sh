#!/usr/bin/env bash
# A Docker engine of our own on a bare Debian machine (root, no systemd, no registry), for the tests of the docker backend.
#   docker_engine.sh start FOLDER    installs what is missing and starts the engine; prints its address (DOCKER_HOST)
#   docker_engine.sh image NAME      makes an image of this machine's own Python; needs DOCKER_HOST
#   docker_engine.sh stop FOLDER     ends the engine with all its containers and removes the folder
# PYTHON chooses the interpreter that goes into the image (default: python3).
set -euo pipefail

here="$(cd "$(dirname "$0")" && pwd)"

install_engine() {
    command -v dockerd >/dev/null && return
    command -v apt-get >/dev/null || { echo "no dockerd here, and no apt-get to install it with" >&2; return 1; }
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >&2
    apt-get install -y -qq --no-install-recommends docker.io >&2
}

answers() { docker --host "$1" version >/dev/null 2>&1; }

start() {
    local folder="$1" address="unix://$1/docker.sock" driver=overlay2
    [ "$(id -u)" = 0 ] || { echo "starting an engine needs root" >&2; return 1; }
    install_engine
    mkdir -p "$folder"
    chmod 711 "$folder" # the users of containers are not root outside, and must get through
    mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup
    grep -qw overlay /proc/filesystems || driver=vfs
    # No bridge and no firewall rules: nothing of this machine's network is changed, and containers have only loopback.
    # userns-remap: root in a container is nobody outside.
    setsid nohup dockerd --host "$address" --data-root "$folder/data" --exec-root "$folder/exec" \
        --pidfile "$folder/pid" --storage-driver "$driver" --userns-remap default \
        --bridge none --iptables=false --ip6tables=false --ip-forward=false >"$folder/log" 2>&1 </dev/null &
    local engine=$!
    for _ in $(seq 300); do
        answers "$address" && { echo "$address"; return; }
        kill -0 "$engine" 2>/dev/null || break
        sleep 0.1
    done
    echo "the engine did not come up; the end of $folder/log:" >&2
    tail -n 20 "$folder/log" >&2
    return 1
}

image() {
    "${PYTHON:-python3}" "$here/docker_image.py" | docker import --change 'ENV PATH=/usr/local/bin:/usr/bin:/bin' \
        --change 'ENV LANG=C.UTF-8' - "$1"
}

stop() {
    local folder="$1" engine containers
    [ -f "$folder/pid" ] || return 0
    engine="$(cat "$folder/pid")"
    containers="$(timeout 20 docker --host "unix://$folder/docker.sock" ps --all --quiet || true)"
    # shellcheck disable=SC2086
    [ -z "$containers" ] || timeout 60 docker --host "unix://$folder/docker.sock" rm --force --volumes $containers >/dev/null || true
    kill "$engine" 2>/dev/null || true
    for _ in $(seq 300); do
        [ -d "/proc/$engine" ] && ! grep -q '^State:.Z' "/proc/$engine/status" 2>/dev/null || break
        sleep 0.1
    done
    awk -v folder="$folder/" 'index($5, folder) == 1 { print $5 }' /proc/self/mountinfo | sort -r | xargs -r umount -l
    rm -rf "$folder"
}

case "${1:-}" in
start | image | stop) "$1" "${2:?a folder, or the name of the image}" ;;
*) sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
