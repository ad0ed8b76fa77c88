#!/bin/sh
# Bring up what the project needs to run, then run the command after `--` with it.
#
#   deploy/bootstrap.sh runtime|dev [-- COMMAND [ARGUMENT...]]
#
# Makes sure of these things, and does nothing for those that are there:
#   1. Python 3.11 to 3.13: $PYTHON if set, else the first of python3, python3.13,
#      python3.12, python3.11 that is one of them;
#   2. a Java runtime, 17 or newer: $JAVA_HOME, PATH, then /usr/lib/jvm;
#   3. .venv with the locked packages (`runtime`: what the daemons run on; `dev`: tests,
#      checkers and every extra as well) and the project itself, editable;
#   4. for `dev`: Node.js, 18 or newer, with npm, and the Azure emulator that the tests
#      start, locked, in tests/azurite/node_modules;
#   5. for `dev`: Chromium, which the tests open the status page with, and promtool and
#      kubectl, which check the alert rules and render the manifests;
#   6. for `dev`: the servers of PostgreSQL and MariaDB, which the tests start themselves,
#      and PostgreSQL's JDBC driver.
# What the distribution leaves out (ensurepip, Java, Node.js, Chromium, servers) is installed
# with apt-get, as root; through sudo only where SETUP_SUDO=yes says so, or whoever sits at the
# terminal when asked. Without the right to do that it says what to install and exits 1. promtool and kubectl are only taken out of their packages, into .tools:
# installing the one would start a Prometheus, on the port that the daemons like best.
# No database is started either: MariaDB's package is the one without a service, and
# PostgreSQL's makes no cluster where it is told so before.
#
# A stamp in .venv per set of packages, and one beside the emulator, hold a hash of what
# they were made from, so a second run only compares. The command sees .venv/bin first on
# PATH and .tools last, and JAVA_HOME if Java is not on PATH.

set -eu

ROOT=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
cd "$ROOT"
VENV=$ROOT/.venv
JVM_DIR=${JVM_DIR:-/usr/lib/jvm} # a variable so that tests can point elsewhere
JAVA_PACKAGES='openjdk-21-jre-headless openjdk-17-jre-headless default-jre-headless'
POSTGRESQL_DIR=${POSTGRESQL_DIR:-/usr/lib/postgresql} # likewise, and the three below
POSTGRESQL_CONF=${POSTGRESQL_CONF:-/etc/postgresql-common}
SERVERS_DIR=${SERVERS_DIR:-/usr/sbin}
JARS_DIR=${JARS_DIR:-/usr/share/java}
EMULATOR=$ROOT/tests/azurite
TOOLS=$ROOT/.tools
LISTS_UPDATED=no

say() { printf 'setup: %s\n' "$*" >&2; }

fail() {
    say "$@"
    exit 1
}

# --- looking ------------------------------------------------------------------------

# 3.12 for an interpreter of that version, nothing if it does not run.
python_version() {
    "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || true
}

suitable_python() {
    case $(python_version "$1") in 3.11 | 3.12 | 3.13) ;; *) return 1 ;; esac
}

# Sets PY to an interpreter to make .venv with.
find_python() {
    if [ -n "${PYTHON:-}" ]; then
        suitable_python "$PYTHON" ||
            fail "PYTHON=$PYTHON is not Python 3.11, 3.12 or 3.13 (it answers '$(python_version "$PYTHON")')"
        PY=$PYTHON
        return
    fi
    for PY in python3 python3.13 python3.12 python3.11; do
        if suitable_python "$PY"; then return; fi
    done
    fail "Python 3.11, 3.12 or 3.13 is needed and none was found;" \
        "install one (python3.13, say) or give its path: make PYTHON=/path/to/python3.13"
}

# 17 for `openjdk version "17.0.9"`, 8 for `"1.8.0_292"`, 0 if it does not run.
java_major() {
    major=$("$1" -version 2>&1 | sed -n '
        s/^.* version "1\.\([0-9][0-9]*\).*/\1/p; t end
        s/^.* version "\([0-9][0-9]*\).*/\1/p; t end
        b
        : end
        q') || true
    printf '%s\n' "${major:-0}"
}

# True if there is a Java runtime, 17 or newer. JAVA_HOME is set to it, or unset if the
# one on PATH is it: Spark prefers JAVA_HOME, so an old one must not stay.
find_java() {
    if [ -n "${JAVA_HOME:-}" ]; then
        if [ "$(java_major "$JAVA_HOME/bin/java")" -ge 17 ]; then
            export JAVA_HOME
            return
        fi
        unset JAVA_HOME
    fi
    if [ "$(java_major java)" -ge 17 ]; then return; fi
    newest=16
    for home in "$JVM_DIR"/*; do
        [ -x "$home/bin/java" ] || continue
        found=$(java_major "$home/bin/java")
        if [ "$found" -gt "$newest" ]; then
            newest=$found
            JAVA_HOME=$home
        fi
    done
    [ -n "${JAVA_HOME:-}" ] || return 1
    export JAVA_HOME
}

# True if there is npm and a Node.js, 18 or newer (Debian 12 has that).
find_node() {
    have npm || return 1
    major=$(node --version 2>/dev/null | sed -n 's/^v\([0-9][0-9]*\)\..*/\1/p') || true
    [ "${major:-0}" -ge 18 ]
}

# True if there is PostgreSQL's server, on PATH or where Debian keeps it.
find_postgresql() {
    if have initdb && have postgres; then return; fi
    for folder in "$POSTGRESQL_DIR"/*/bin; do
        if [ -x "$folder/initdb" ] && [ -x "$folder/postgres" ]; then return; fi
    done
    return 1
}

# True if there is MariaDB's server, with the client that the tests speak to it with. A user's
# PATH lacks the folder of servers.
find_mariadb() {
    have mariadb && { have mariadbd || [ -x "$SERVERS_DIR/mariadbd" ]; }
}

# --- packages of the distribution -----------------------------------------------------

have() { command -v "$1" >/dev/null 2>&1; }

# Sets SUDO to what runs a command as root ('' for root itself); false if nothing does.
# Where a person sits at the terminal, sudo may ask for the password. $* says what for.
find_rights() {
    if [ "$(id -u)" = 0 ]; then
        SUDO=
    elif ! have sudo || ! may_use_sudo "$@"; then
        return 1
    elif sudo -n true 2>/dev/null; then
        SUDO='sudo -n'
    elif [ -t 0 ] && [ -t 2 ]; then
        SUDO=sudo
    else
        return 1
    fi
}

# Whether it may become root: SETUP_SUDO says so, or whoever sits at the terminal, once.
may_use_sudo() {
    if [ -z "${SETUP_SUDO:-}" ]; then
        if ! [ -t 0 ] || ! [ -t 2 ]; then return 1; fi
        printf 'setup: use sudo to %s? [y/N] ' "$*" >&2
        read -r answer || answer=
        case $answer in [yY]*) SETUP_SUDO=yes ;; *) SETUP_SUDO=no ;; esac
    fi
    [ "$SETUP_SUDO" = yes ]
}

# The version apt would install, nothing if it knows none.
candidate() {
    LC_ALL=C apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: *//p' | grep -v '^(none)$' || true
}

# The newest Java package, 17 or newer, that apt knows; nothing if there is none.
# default-jre-headless is versioned 2:1.21-75: the Java version is after "1.".
java_package() {
    for name in $JAVA_PACKAGES; do
        version=$(candidate "$name")
        version=${version#*:}
        version=${version#1.}
        version=${version%%[!0-9]*}
        if [ "${version:-0}" -ge 17 ]; then
            printf '%s\n' "$name"
            return
        fi
    done
}

apt_get() {
    # shellcheck disable=SC2086  # SUDO is a command and its option
    $SUDO env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 \
        apt-get -qq -o DPkg::Lock::Timeout=120 -o Dpkg::Use-Pty=0 \
        -o Dpkg::Options::=--force-confold "$@" >"$LOG" 2>&1 </dev/null
}

# LOG is where apt-get writes until `close_log`.
open_log() {
    LOG=$(mktemp)
    trap 'rm -f "$LOG"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

close_log() {
    rm -f "$LOG"
    trap - EXIT INT TERM
}

update_lists() {
    [ "$LISTS_UPDATED" = no ] || return 0
    LISTS_UPDATED=yes
    say "updating the distribution's package lists..."
    # A broken list of another source must not stop us; a missing package will.
    apt_get update || say "apt-get update failed in part, going on: $(tail -n 1 "$LOG")"
}

# Node.js and npm, or Node.js alone where its package holds npm as well.
node_packages() {
    printf 'nodejs%s\n' "$([ -z "$(candidate npm)" ] || echo ' npm')"
}

# Before its package is there: have PostgreSQL's make no cluster, and so start no server.
# Whoever has the folder has the package, and settings of their own.
no_postgresql_cluster() {
    [ ! -e "$POSTGRESQL_CONF" ] || return 0
    $SUDO mkdir -p "$POSTGRESQL_CONF"
    echo 'create_main_cluster = false' |
        $SUDO tee "$POSTGRESQL_CONF/createcluster.conf" >/dev/null
}

# Installs what NEED_VENV (a Python version), NEED_JAVA, NEED_NODE, NEED_BROWSER and
# NEED_SERVERS (packages) ask for, or says what to install.
install_missing() {
    wanted=
    packages=
    if [ -n "$NEED_VENV" ]; then
        wanted="Python's venv module for $PY"
        packages=python$NEED_VENV-venv
    fi
    if [ "$NEED_JAVA" = yes ]; then
        wanted="${wanted:+$wanted and }a Java runtime, 17 or newer"
    fi
    if [ "$NEED_NODE" = yes ]; then
        wanted="${wanted:+$wanted and }Node.js, 18 or newer, with npm"
    fi
    if [ "$NEED_BROWSER" = yes ]; then wanted="${wanted:+$wanted and }Chromium"; fi
    if [ -n "$NEED_SERVERS" ]; then
        wanted="${wanted:+$wanted and }database servers for the tests ($NEED_SERVERS)"
    fi
    if ! have apt-get; then
        fail "missing: $wanted; install it with your distribution's package manager and run this again"
    fi
    if ! find_rights "install $wanted"; then
        if [ "$NEED_JAVA" = yes ]; then
            java=$(java_package)
            packages="${packages:+$packages }${java:-default-jre-headless}"
        fi
        if [ "$NEED_NODE" = yes ]; then packages="${packages:+$packages }nodejs npm"; fi
        if [ "$NEED_BROWSER" = yes ]; then packages="${packages:+$packages }chromium"; fi
        if [ -n "$NEED_SERVERS" ]; then packages="${packages:+$packages }$NEED_SERVERS"; fi
        say "missing: $wanted"
        fail "no right to install it here (not root; sudo only with SETUP_SUDO=yes); as root, run:" \
            "apt-get update && apt-get install $packages"
    fi
    open_log
    if [ -n "$NEED_VENV" ] && [ -z "$(candidate "$packages")" ]; then
        update_lists
        [ -n "$(candidate "$packages")" ] || packages=python3-venv
    fi
    if [ "$NEED_JAVA" = yes ]; then
        java=$(java_package)
        if [ -z "$java" ]; then
            update_lists
            java=$(java_package)
        fi
        [ -n "$java" ] || fail "missing: $wanted; this distribution has none of $JAVA_PACKAGES" \
            "in version 17 or newer: install one, and set JAVA_HOME"
        packages="${packages:+$packages }$java"
    fi
    if [ "$NEED_NODE" = yes ]; then
        [ -n "$(candidate nodejs)" ] || update_lists
        packages="${packages:+$packages }$(node_packages)"
    fi
    if [ "$NEED_BROWSER" = yes ]; then packages="${packages:+$packages }chromium"; fi
    if [ -n "$NEED_SERVERS" ]; then packages="${packages:+$packages }$NEED_SERVERS"; fi
    # shellcheck disable=SC2086  # a list of names
    set -- $packages
    say "installing $* from the distribution..."
    if [ "$NEED_JAVA" = yes ]; then
        $SUDO mkdir -p /usr/share/man/man1 # slim images lack it, and Java's package fails without
    fi
    case " $* " in *" postgresql "*) no_postgresql_cluster ;; esac
    if ! apt_get install --yes --no-install-recommends "$@"; then
        update_lists # the lists may have named files that are gone
        apt_get install --yes --no-install-recommends "$@" || {
            tail -n 20 "$LOG" >&2
            fail "could not install what is missing ($wanted); try: apt-get update && apt-get install $*"
        }
    fi
    close_log
}

# --- single programs out of packages ---------------------------------------------------

# The package that the distribution has the program in.
package_of() {
    case $1 in
        promtool) echo prometheus ;;
        kubectl) echo kubernetes-client ;;
    esac
}

# Takes the program $1 out of its package, without installing that.
fetch_tool() {
    package=$(package_of "$1")
    if ! have apt-get || ! have dpkg-deb; then
        fail "missing: $1; install it with your distribution's package manager and run this again"
    fi
    open_log
    if [ -z "$(candidate "$package")" ]; then
        find_rights "update the package lists" || fail "missing: $1; as root, run: apt-get update"
        update_lists
    fi
    say "taking $1 out of the distribution's package $package..."
    folder=$(mktemp -d)
    download="cd '$folder' && apt-get -qq download $package"
    if ! sh -c "$download" >"$LOG" 2>&1; then
        # The lists may have named a file that is gone.
        if find_rights "update the package lists"; then update_lists; fi
        sh -c "$download" >"$LOG" 2>&1 || {
            tail -n 20 "$LOG" >&2
            rm -rf "$folder"
            fail "could not download $package, which has $1; try: apt-get update, or install $1 on PATH"
        }
    fi
    dpkg-deb --extract "$folder"/*.deb "$folder/files" || fail "could not unpack $package"
    mkdir -p "$TOOLS"
    cp "$folder/files/usr/bin/$1" "$TOOLS/$1.new" || fail "$package has no $1; install it on PATH"
    mv "$TOOLS/$1.new" "$TOOLS/$1"
    rm -rf "$folder"
    close_log
}

# --- .venv ----------------------------------------------------------------------------

# What an installed set of packages was made from.
stamp_of() {
    { printf '%s\n' "$1" && cat pyproject.toml requirements*.lock; } | sha256sum | cut -c 1-64
}

# A .venv that runs, has pip, stands where it was made and is of the Python asked for.
usable_venv() {
    [ -x "$VENV/bin/python" ] && [ -x "$VENV/bin/pip" ] || return 1
    grep -qF "$VENV" "$VENV/bin/activate" 2>/dev/null || return 1
    suitable_python "$VENV/bin/python" || return 1
    [ -z "${PYTHON:-}" ] || [ "$(python_version "$PYTHON")" = "$(python_version "$VENV/bin/python")" ]
}

# -qq: errors only; a pip.conf of the machine may make it warn about every package.
pip_install() {
    "$VENV/bin/python" -m pip -qq --disable-pip-version-check --no-input install \
        --no-build-isolation --use-pep517 "$@" </dev/null ||
        fail "pip could not install $*; see above"
}

# The build backend first, so that packages without a wheel are built with the locked one.
install_packages() {
    case $1 in
        runtime) lock=requirements.lock size='1 GB' ;;
        dev) lock=requirements-dev.lock size='1.6 GB' ;;
    esac
    say "installing locked packages ($lock, $size on disk; a minute or a few the first time)..."
    pip_install --require-hashes -r requirements-build.lock
    pip_install --no-compile --require-hashes -r "$lock"
    say "installing the project..."
    pip_install --no-deps --editable .
    # With all cores, where pip has one; what packages have for other Pythons does not compile.
    "$VENV/bin/python" -m compileall -qq -j 0 "$VENV/lib" </dev/null >&2 || true
}

# --- the Azure emulator ---------------------------------------------------------------

# npm ci removes what is there first, the stamp included.
install_emulator() {
    stamp=$(sha256sum <"$EMULATOR/package-lock.json" | cut -c 1-64)
    [ "$stamp" != "$(cat "$EMULATOR/node_modules/.stamp" 2>/dev/null)" ] || return 0
    say "installing the Azure emulator for the tests (190 MB on disk)..."
    (cd "$EMULATOR" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error) </dev/null >&2 ||
        fail "npm could not install the Azure emulator; see above"
    printf '%s\n' "$stamp" >"$EMULATOR/node_modules/.stamp"
}

main() {
    set_of=${1:-}
    case $set_of in runtime | dev) shift ;; *) fail "usage: $0 runtime|dev [-- COMMAND...]" ;; esac
    if [ "${1:-}" = -- ]; then shift; fi

    NEED_VENV=
    NEED_JAVA=no
    NEED_NODE=no
    NEED_BROWSER=no
    NEED_SERVERS=
    find_java || NEED_JAVA=yes
    if [ "$set_of" = dev ]; then
        PATH=$PATH:$TOOLS
        find_node || NEED_NODE=yes
        have chromium || NEED_BROWSER=yes
        find_postgresql || NEED_SERVERS=postgresql
        find_mariadb ||
            NEED_SERVERS="${NEED_SERVERS:+$NEED_SERVERS }mariadb-server-core mariadb-client-core"
        [ -e "$JARS_DIR/postgresql.jar" ] ||
            NEED_SERVERS="${NEED_SERVERS:+$NEED_SERVERS }libpostgresql-jdbc-java"
    fi
    if ! usable_venv; then
        find_python
        "$PY" -c 'import ensurepip, venv' 2>/dev/null || NEED_VENV=$(python_version "$PY")
    fi
    if [ -n "$NEED_VENV" ] || [ "$NEED_JAVA" = yes ] || [ "$NEED_NODE" = yes ] ||
        [ "$NEED_BROWSER" = yes ] || [ -n "$NEED_SERVERS" ]; then
        install_missing
        find_java || fail "a Java runtime was installed, but none of version 17 or newer is found; set JAVA_HOME"
        [ "$NEED_NODE" = no ] || find_node ||
            fail "Node.js was installed, but it is older than 18 or lacks npm; install a newer one on PATH"
    fi
    if [ "$set_of" = dev ]; then
        for tool in promtool kubectl; do have "$tool" || fetch_tool "$tool"; done
    fi

    if ! usable_venv; then
        say "creating .venv with Python $(python_version "$PY")..."
        rm -rf "$VENV"
        "$PY" -m venv "$VENV" || fail "$PY could not make a virtual environment in $VENV"
    fi
    # npm waits for the network, and pip computes. A failed script leaves neither behind.
    if [ "$set_of" = dev ]; then
        install_emulator &
        emulator=$!
        trap 'wait' EXIT
    fi
    stamp=$(stamp_of "$set_of")
    if [ "$stamp" != "$(cat "$VENV/.stamp-$set_of" 2>/dev/null)" ]; then
        rm -f "$VENV"/.stamp-*
        install_packages "$set_of"
        # The packages of `dev` are those of `runtime` and more, in the same versions.
        if [ "$set_of" = dev ]; then stamp_of runtime >"$VENV/.stamp-runtime"; fi
        printf '%s\n' "$stamp" >"$VENV/.stamp-$set_of"
        say "done"
    fi

    if [ "$set_of" = dev ]; then
        trap - EXIT
        wait "$emulator" || exit 1
    fi

    if [ $# -gt 0 ]; then
        PATH=$VENV/bin:$PATH
        VIRTUAL_ENV=$VENV
        export PATH VIRTUAL_ENV
        exec "$@"
    fi
}

main "$@"
