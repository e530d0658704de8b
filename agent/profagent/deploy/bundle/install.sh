#!/bin/sh
# Installs this daemon on the board on which it runs, where SSH does not lead there. POSIX sh, and what BusyBox has.
# The steps are those of `profagent deploy`, which may go on from here, or have been here before: this tree's own Python
# writes them down as commands.
set -eu

PREFIX=/opt/profagent
SETTINGS=/etc/profagent
CONFIG=$SETTINGS/profagentd.toml
# A slow card takes its time to start an interpreter.
: "${ANSWER_S:=120}"
# How often others are told that this still works here.
BEAT_S=5

usage() {
    cat <<'TEXT'
usage: sh install.sh --root DIR [--root DIR]... [--keys DIR] [--listen HOST:PORT] [--init auto|systemd|initd|none]
       sh install.sh --rollback | --remove

Installs this version below /opt/profagent, and starts it; over another one it is the upgrade.
  --root DIR     where programs write their JOBs; needed when there are no settings on the board
  --keys DIR     what `profagent keys issue board` made on the host: board.pem, board.key, ca.pem, revoked.txt
  --listen       0.0.0.0:50151 with keys, else 127.0.0.1:50151, unless given
  --init         what starts it; found out unless given; none: nothing does at boot
  --rollback     goes back to the version before
  --remove       stops it and removes all but JOBs
TEXT
}

fail() { # WHAT WHAT_TO_DO
    printf 'install.sh: %s\n  %s\n' "$1" "$2" >&2
    exit 1
}

# The answer to a question, of profagent/deploy/bundle/by_hand.py.
told() { # QUESTION WORD...
    "$here/bin/python" -I -B -c 'import sys
sys.path.insert(0, sys.argv.pop(1))
from profagent.deploy.bundle.by_hand import main
sys.exit(main(sys.argv[1:]))' "$here/installer" "$PREFIX" "$@"
}

run() { # QUESTION WORD...
    commands=$(told "$@") && sh -c "$commands"
}

version() { # LINK
    link=$(readlink "$PREFIX/$1") || return 0
    echo "${link##*/}"
}

refused() {
    [ -e "$lock/owner" ] || fail "$lock cannot be made" "see that its file system is mounted so, and has room"
    fail "this board is being worked on from $(cut -d ' ' -f 1 "$lock/owner")" "try again when that is done"
}

# Nobody else deploys here meanwhile; what is on trial when this ends comes back.
take_board() {
    owner="install.sh $(cat /proc/sys/kernel/random/uuid)"
    lock=$(told lock "$init")
    held=$(told held "$init" "$owner")
    owned=$(told owned "$init" "$owner")
    back=$(told taken-back)
    while kill -0 "$$" && echo; do sleep "$BEAT_S"; done 2>/dev/null | sh -c "$held" >/dev/null 2>&1 &
    holder=$!
    until sh -c "$owned"; do
        kill -0 "$holder" 2>/dev/null || refused
        sleep 1
    done
    trap leave EXIT
    trap 'exit 1' HUP INT TERM
    sh -c "$back"
}

leave() {
    sh -c "$back" || :
    if sh -c "$owned"; then rm -rf "$lock"; fi
    rmdir "$PREFIX" 2>/dev/null || :
}

# Every file of a version that is there is as it was made.
is_whole() { # NAME
    [ "$(told name "$PREFIX/versions/$1" 2>/dev/null)" = "$1" ]
}

# This directory, whole and on the disk, among the versions, in place of one that is damaged.
bring() { # NAME
    ! is_whole "$1" || return 0
    part=$(told part "$1")
    { cp -R "$here" "$part" && chmod -R u=rwX,go=rX "$part" && told name "$part" >/dev/null; } || {
        rm -rf "$part"
        fail "it cannot be copied to $PREFIX" "make room there: $(du -sk "$here" | cut -f 1) KiB are needed"
    }
    run settled "$1"
}

# Settings, keys and service take their places beside those that are there, and the version says what it thinks of them.
prepare() { # NAME
    run unstaged "$init"
    if ! printf '%s' "$roots" | told staged "$init" "$keys" "$listen"; then
        run unstaged "$init"
        exit 1
    fi
    if ! run checked "$1"; then
        run unstaged "$init"
        fail "the settings have mistakes" "mend $CONFIG, then run this again"
    fi
}

# A version runs from now on, or, when it does not answer, what was there before is there, and runs, again.
try_out() { # NAME
    run kept "$init" "$1"
    told trial "$init" "$1" "$owner" >"$PREFIX/trial.part/run"
    old=$(version current)
    if run begun "$init" "$owner" && told answers "$ANSWER_S" && run confirmed; then
        echo "profagentd $1 is installed; $(told at-boot "$init")"
        return 0
    fi
    sh -c "$back"
    fail "profagentd $1 does not start: ${old:-nothing} is back" "see the lines above, and the log of profagentd"
}

install() {
    machine=$(sed -n 's/^ "machine": "\(.*\)",$/\1/p' "$here/manifest.json")
    [ "$machine" = "$(uname -m)" ] ||
        fail "this is for $machine, and the board is $(uname -m)" "make one with profagent bundle --arch $(uname -m)"
    if [ -e "$CONFIG" ]; then
        [ -z "$roots$listen" ] || fail "$CONFIG is there already" "leave --root and --listen out, and edit that file"
    else
        [ -n "$roots" ] || fail "there are no settings on this board" "say where JOBs are: --root DIR"
    fi
    : "${listen:=$([ -n "$keys" ] && echo 0.0.0.0:50151 || echo 127.0.0.1:50151)}"
    for file in board.pem board.key ca.pem revoked.txt; do
        [ -z "$keys" ] || [ -r "$keys/$file" ] ||
            fail "there is no $keys/$file" "make it on the host with profagent keys issue board, and copy the folder here"
    done
    name=$(told name "$here") || fail "$here is not whole" "unpack the bundle again"
    init=$(run init "$init")
    take_board
    run directories "$init" || fail "$PREFIX cannot be written to" "see that it is mounted so, and has room"
    # What interrupted installations have left may be the room that lacks.
    run cleared "$(version current)" "$(version previous)" "$name"
    bring "$name"
    prepare "$name"
    try_out "$name"
    run cleared "$name" "$(version previous)"
}

roll_back() {
    name=$(version previous)
    [ -n "$name" ] || fail "there is no version before this one" "install one"
    is_whole "$name" || fail "$name, the version before, is damaged" "install it anew"
    init=$(told installed)
    take_board
    prepare "$name"
    try_out "$name"
}

remove() {
    init=$(told installed)
    lost=$(told lost-root "$init") || fail "what would be removed is not known" "mend the settings first"
    [ -z "$lost" ] || fail "JOBs below $lost would be removed, too" "move them elsewhere, and change the settings"
    take_board
    run removed "$init"
    echo "profagentd is removed; JOBs are as they were"
}

here=$(cd "$(dirname "$0")" && pwd -P)
roots='' keys='' listen='' init=auto act=install
while [ $# -gt 0 ]; do
    case $1 in
    --help | -h)
        usage
        exit 0
        ;;
    --rollback | --remove) act=${1#--} ;;
    --root | --keys | --listen | --init)
        [ $# -ge 2 ] || fail "$1 takes a value" "see sh install.sh --help"
        case $2 in *[\"\\]* | *'
'*) fail "$1 $2 has a quote, a backslash or a line's end" "take a plain one" ;; esac
        case $1 in
        --root)
            case $2 in /*) roots="$roots$2
" ;; *) fail "--root $2 is no absolute path" "begin it with /" ;; esac
            ;;
        --keys) keys=$2 ;;
        --listen) listen=$2 ;;
        --init) init=$2 ;;
        esac
        shift
        ;;
    *) fail "$1 is not known" "see sh install.sh --help" ;;
    esac
    shift
done
case $init in
auto | systemd | initd | none) ;;
*) fail "--init $init is not known" "take auto, systemd, initd or none" ;;
esac
[ "$(id -u)" = 0 ] || fail "only root may install a service" "become root, with su"

case $act in
install) install ;;
remove) remove ;;
rollback) roll_back ;;
esac
