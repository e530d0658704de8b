#!/bin/sh
# Installs this daemon on the board on which it runs, where SSH does not lead there. POSIX sh, and what BusyBox has.
# Paths and links are those of `profagent deploy`, which may go on from here, or have been here before.
set -eu

PREFIX=/opt/profagent
SETTINGS=/etc/profagent
CONFIG=$SETTINGS/profagentd.toml
STATE=/var/lib/profagentd
UNIT=/etc/systemd/system/profagentd.service
USERS=/etc/sysusers.d/profagentd.conf
DIRECTORIES=/etc/tmpfiles.d/profagentd.conf
SCRIPT=/etc/init.d/profagentd
# BusyBox's rcS starts what is called so.
BOOTED=/etc/init.d/S90profagentd
LOG=/var/log/profagentd.log
# A slow card takes its time to start an interpreter.
: "${ANSWER_S:=120}"

usage() {
    cat <<'TEXT'
usage: sh install.sh --root DIR [--root DIR]... [--keys DIR] [--listen HOST:PORT] [--init auto|systemd|initd|none]
       sh install.sh --rollback | --remove

Installs this version below /opt/profagent, and starts it; over another one it is the upgrade.
  --root DIR     where programs write their JOBs; needed when there are no settings on the board
  --keys DIR     what `profagent keys issue board` made on the host: board.pem, board.key, ca.pem, revoked.txt
  --listen       0.0.0.0:50151 with keys, else 127.0.0.1:50151, unless given
  --init         what starts it; found out unless given; none: nothing does
  --rollback     goes back to the version before
  --remove       stops it and removes all but JOBs
TEXT
}

fail() { # WHAT WHAT_TO_DO
    printf 'install.sh: %s\n  %s\n' "$1" "$2" >&2
    exit 1
}

# The name of a version directory whose files are all as they were made.
checked_name() { # DIRECTORY
    "$1/bin/python" -I -B -c 'import hashlib, json, sys
def read(path):
    with open(path, "rb") as file:
        return file.read()
text = read(sys.argv[1] + "/manifest.json")
manifest = json.loads(text)
for path, digest in manifest["files"].items():
    if hashlib.sha256(read(sys.argv[1] + "/" + path)).hexdigest() != digest:
        sys.exit(path + " is damaged")
print(manifest["version"], hashlib.sha256(text).hexdigest()[:8], sep="-")' "$1"
}

# A link is there at every moment: `ln -sf` would remove it first.
point() { # LINK TARGET
    rm -f "$PREFIX/link.new"
    ln -s "$2" "$PREFIX/link.new"
    "$PREFIX/$2/bin/python" -I -B -c 'import os, sys
os.replace(*sys.argv[1:])' "$PREFIX/link.new" "$PREFIX/$1"
}

# Something listens where the settings say.
answers() {
    "$PREFIX/current/bin/python" -I -B -c 'import socket, sys, time, tomllib
with open(sys.argv[1], "rb") as file:
    listen = tomllib.load(file).get("listen", "127.0.0.1:50151")
is_unix = listen.startswith("unix:")
host, _, port = listen.rpartition(":")
until = time.monotonic() + float(sys.argv[2])
while True:
    try:
        if is_unix:
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(listen[len("unix:"):])
        else:
            socket.create_connection((host.strip("[]"), int(port)), 5).close()
        break
    except OSError as error:
        if time.monotonic() > until:
            sys.exit("nothing answers at %s: %s" % (listen, error))
        time.sleep(0.2)' "$CONFIG" "$ANSWER_S"
}

found_init() {
    if [ -d /run/systemd/system ]; then echo systemd; elif [ -d /etc/init.d ]; then echo initd; else echo none; fi
}

installed_init() {
    if [ -e "$UNIT" ]; then echo systemd; elif [ -e "$SCRIPT" ]; then echo initd; else echo none; fi
}

write_settings() {
    if [ -n "$keys" ]; then
        mkdir -p "$SETTINGS/keys"
        chmod 700 "$SETTINGS/keys"
        for file in board.pem board.key ca.pem revoked.txt; do
            (umask 077 && cp "$keys/$file" "$SETTINGS/keys/$file")
        done
    fi
    [ -s "$SETTINGS/board-id" ] || cat /proc/sys/kernel/random/uuid >"$SETTINGS/board-id"
    [ ! -e "$CONFIG" ] || return 0
    {
        printf 'listen = "%s"\nroots = [%s]\n' "$listen" "${roots%, }"
        if [ -n "$keys" ]; then
            printf 'tls_%s = "%s"\n' cert "$SETTINGS/keys/board.pem" key "$SETTINGS/keys/board.key" \
                ca "$SETTINGS/keys/ca.pem" revoked "$SETTINGS/keys/revoked.txt"
        fi
    } >"$CONFIG.part"
    mv -f "$CONFIG.part" "$CONFIG"
}

install_service() { # INIT
    case $1 in
    systemd)
        mkdir -p "${USERS%/*}" "${DIRECTORIES%/*}"
        cp "$here/service/sysusers.d/profagentd.conf" "$USERS"
        cp "$here/service/tmpfiles.d/profagentd.conf" "$DIRECTORIES"
        cp "$here/service/profagentd.service" "$UNIT"
        systemd-sysusers "$USERS"
        systemctl daemon-reload
        systemctl --quiet enable profagentd
        ;;
    initd)
        cp "$here/service/profagentd.init" "$SCRIPT"
        chmod 755 "$SCRIPT"
        if command -v update-rc.d >/dev/null; then update-rc.d profagentd defaults; else ln -sf profagentd "$BOOTED"; fi
        ;;
    esac
}

restart() { # INIT
    case $1 in
    systemd)
        systemctl reset-failed profagentd 2>/dev/null || :
        systemctl restart profagentd && answers
        ;;
    initd) "$SCRIPT" restart && answers ;;
    none) echo "start it with $PREFIX/current/bin/profagentd --config $CONFIG --roots-d $SETTINGS/roots.d" ;;
    esac
}

# Another version runs from now on, or, when it does not, the old one again.
switch() { # VERSION INIT
    old=$(readlink "$PREFIX/current" || :)
    [ "$old" = "versions/$1" ] || [ -z "$old" ] || point previous "$old"
    point current "versions/$1"
    if restart "$2"; then
        echo "profagentd $1 is installed"
        return 0
    fi
    if [ -n "$old" ] && [ "$old" != "versions/$1" ]; then
        point current "$old"
        restart "$2" || :
        fail "profagentd $1 does not start: ${old#versions/} is back" "see the lines above, $LOG or journalctl -u profagentd"
    fi
    fail "profagentd $1 does not start" "see the lines above, $LOG or journalctl -u profagentd"
}

# The first root among what would be removed.
lost_root() {
    "$here/bin/python" -I -B -c 'import glob, os, sys, tomllib
config, roots_d, *lost = sys.argv[1:]
roots = []
if os.path.exists(config):
    with open(config, "rb") as file:
        roots += tomllib.load(file).get("roots", [])
for path in glob.glob(roots_d + "/*.conf"):
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        roots += [line.strip() for line in file]
for root in roots:
    if any((os.path.realpath(root) + "/").startswith(os.path.realpath(each) + "/") for each in lost):
        sys.exit(print(ascii(root)))' "$CONFIG" "$SETTINGS/roots.d" "$PREFIX" "$SETTINGS" "$STATE" "$UNIT.d"
}

remove() {
    lost=$(lost_root) || fail "$CONFIG or $SETTINGS/roots.d cannot be read" "mend it, so that it is known where JOBs are"
    [ -z "$lost" ] || fail "JOBs below $lost would be removed, too" "move them elsewhere, and change the settings"
    case $(installed_init) in
    systemd)
        systemctl --quiet disable --now profagentd || :
        rm -rf "$UNIT" "$UNIT.d" "$USERS" "$DIRECTORIES"
        systemctl daemon-reload
        userdel profagentd 2>/dev/null || deluser profagentd 2>/dev/null || :
        ;;
    initd)
        "$SCRIPT" stop
        rm -f "$SCRIPT" "$BOOTED" /etc/default/profagentd "$LOG" "$LOG.1"
        ! command -v update-rc.d >/dev/null || update-rc.d profagentd remove
        ;;
    esac
    rm -rf "$PREFIX" "$SETTINGS" "$STATE"
    echo "profagentd is removed; JOBs are as they were"
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
    name=$(checked_name "$here") || fail "$here is not whole" "unpack the bundle again"
    target=$PREFIX/versions/$name
    mkdir -p "$PREFIX/versions" "$SETTINGS/roots.d"
    if [ "$here" != "$target" ]; then
        rm -rf "$target.part"
        { cp -R "$here" "$target.part" && chmod -R u=rwX,go=rX "$target.part" && checked_name "$target.part" >/dev/null; } || {
            rm -rf "$target.part"
            fail "it cannot be copied to $PREFIX" "make room there: $(du -sk "$here" | cut -f 1) KiB are needed"
        }
        if [ -d "$target" ]; then rm -rf "$target.part"; else mv "$target.part" "$target"; fi
    fi
    write_settings
    "$target/bin/profagentd" --config "$CONFIG" --roots-d "$SETTINGS/roots.d" --check-config >/dev/null ||
        fail "the settings have mistakes" "mend $CONFIG, then run this again"
    install_service "$init"
    switch "$name" "$init"
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
            case $2 in /*) roots="$roots\"$2\", " ;; *) fail "--root $2 is no absolute path" "begin it with /" ;; esac
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
auto) init=$(found_init) ;;
systemd | initd | none) ;;
*) fail "--init $init is not known" "take auto, systemd, initd or none" ;;
esac
[ "$(id -u)" = 0 ] || fail "only root may install a service" "become root, with su"

case $act in
install) install ;;
remove) remove ;;
rollback)
    old=$(readlink "$PREFIX/previous") || fail "there is no version before this one" "install one"
    switch "${old#versions/}" "$(installed_init)"
    ;;
esac
