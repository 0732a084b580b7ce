# shellcheck shell=bash
# The network, the room on disks and the rights that the scripts beside this file need: asked for
# before the work, and, where a tool fails for want of one of them, said in one line with what to do
# instead. Sourced; the caller has die().

# A server of names that does not answer is given up after seconds, not after minutes.
export RES_OPTIONS=${RES_OPTIONS:-timeout:3 attempts:2}

# Prints what is free where a directory is, or will be.
free_mb() { # DIRECTORY
    local place=$1
    until [[ -d $place ]]; do place=$(dirname "$place"); done
    df -Pm "$place" | awk 'NR == 2 { print $4 }'
}

# Ends the script unless there is so much room.
need_space() { # DIRECTORY MEGABYTES WHAT REPAIR
    local free
    free=$(free_mb "$1")
    ((free >= $2)) ||
        die "no space left: $3 needs $2 MB in $1, which has $free MB: $4"
}

# Ends the script unless a directory is there, or can be made, and takes files.
need_writable() { # DIRECTORY REPAIR
    local probe
    { mkdir -p "$1" && probe=$(mktemp -p "$1" .oj-XXXXXX) && rm "$probe"; } 2>/dev/null ||
        die "$(id -un) cannot write to $1: $2"
}

NO_SPACE="No space left on device|not have enough (free )?space|Disk quota exceeded"
NO_NETWORK="Temporary failure (in name resolution|resolving [^)\`]*)|Could not resolve [^')]*|Name or \
service not known|Network is unreachable|No route to host|Connection (refused|timed out|reset by peer)|\
Could not connect to [^)]*|certificate verify failed|Unable to connect to [^)]*|Read timed out|Cannot connect to proxy"

# Runs a command without a word; if it fails, ends the script with the reason: in one line where it
# is the network or the room, else after all that the command said.
attempt() { # WHAT REPAIR-OF-NETWORK REPAIR-OF-ROOM COMMAND...; room_in=DIRECTORY that it fills
    local what=$1 network=$2 room=$3 said reason
    shift 3
    said=$("$@" 2>&1 </dev/null) && return
    if reason=$(grep -oiE -m1 "$NO_SPACE" <<<"$said"); then
        die "cannot $what: no space left (${reason%%$'\n'*}): $room"
    elif reason=$(grep -oiE -m1 "$NO_NETWORK" <<<"$said"); then
        die "cannot $what: no network (${reason%%$'\n'*}): $network"
    elif (($(free_mb "${room_in:-/}") < 5)); then # not every tool says why
        die "cannot $what: no space left (in ${room_in:-/}): $room"
    fi
    echo "$said" >&2
    die "cannot $what, see above"
}

# Installs packages of Debian.
install_packages() { # PACKAGE...
    [[ $(id -u) == 0 ]] || die "missing packages ($*): run me as root, or install them first"
    echo "installing $*" >&2
    run_apt "install $*" install --no-install-recommends "$@"
}

run_apt() { # WHAT APT-GET-ARGUMENTS...
    local what=$1
    shift
    attempt "$what" "let apt reach a mirror (/etc/apt/sources.list.d, Acquire::http::Proxy), or install them first" \
        "make room in / and /var/cache/apt" update_and_apt "$@"
}

# What an update could not fetch is only a warning: what follows it tells whether it matters.
update_and_apt() { # APT-GET-ARGUMENTS...
    export DEBIAN_FRONTEND=noninteractive
    apt-get -qq -o Acquire::Retries=1 update || true
    apt-get -qq -y -o DPkg::Lock::Timeout=600 -o Dpkg::Use-Pty=0 -o Acquire::Retries=1 "$@"
}
