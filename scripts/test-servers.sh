#!/usr/bin/env bash
# PostgreSQL, etcd, podman, a registry and Chromium for the tests: finds their binaries, and on Debian, as root, installs what is
# missing.
# The tests start servers of their own from these binaries, so no system service is started here, none is left
# enabled, and no existing database cluster is touched. A server that cannot be had is not an error: its tests skip.
# `test-servers.sh slurm` does this for Slurm instead, which only comparisons with it need.
set -euo pipefail

postgres_found() {
    command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null
}

found() {
    command -v "$1" >/dev/null
}

container_programs_found() {
    found podman && found runc && found conmon && found busybox
}

slurm_found() {
    found slurmctld && found slurmd && found sbatch && found munged
}

say() {
    printf 'test-deps: %s\n' "$*"
}

missing=()
if [ "${1:-}" = slurm ]; then
    slurm_found || missing=(munge slurmctld slurmd)
else
    postgres_found || missing+=(postgresql)
    found etcd || missing+=(etcd-server)
    found podman || missing+=(podman)
    found runc || missing+=(runc)
    found conmon || missing+=(conmon)
    found busybox || missing+=(busybox-static)
    found docker-registry || missing+=(docker-registry)
    found chromium || missing+=(chromium)
fi
if [ ${#missing[@]} -eq 0 ]; then
    exit 0
fi

if ! command -v apt-get >/dev/null || [ ! -e /etc/debian_version ]; then
    say "THE TESTS THAT NEED ${missing[*]} WILL BE SKIPPED: this is not Debian; install them by hand and put them on PATH."
    exit 0
fi
if [ "$(id -u)" -ne 0 ]; then
    say "THE TESTS THAT NEED ${missing[*]} WILL BE SKIPPED: not root."
    say "To run them: sudo apt-get install --no-install-recommends ${missing[*]}"
    exit 0
fi

saved="$(mktemp -d)"
policy=/usr/sbin/policy-rc.d
cluster_settings=/etc/postgresql-common/createcluster.conf

restore() {
    if [ -e "$saved/policy-rc.d" ]; then
        cp --preserve=all "$saved/policy-rc.d" "$policy"
    elif [ -e "$saved/policy-made" ]; then
        rm -f "$policy"
    fi
    if [ -e "$saved/createcluster.conf" ]; then
        cp --preserve=all "$saved/createcluster.conf" "$cluster_settings"
    fi
    rm -rf "$saved"
}
trap restore EXIT

forbid_service_starts() {
    if [ -e "$policy" ]; then
        cp --preserve=all "$policy" "$saved/policy-rc.d"
    else
        touch "$saved/policy-made"
    fi
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
}

install_package() {
    DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet=2 --no-install-recommends \
        -o DPkg::Lock::Timeout=120 "$@" </dev/null
}

# Installing a PostgreSQL server makes a cluster "main" unless postgresql-common is told not to beforehand.
install_postgresql() {
    install_package postgresql-common
    cp --preserve=all "$cluster_settings" "$saved/createcluster.conf"
    sed --in-place '/create_main_cluster/d' "$cluster_settings"
    echo 'create_main_cluster = false' >>"$cluster_settings"
    install_package postgresql
}

# Debian enables the services of what it installs.
install_without() {
    local package="$1"
    shift
    install_package "$package"
    if command -v systemctl >/dev/null; then
        systemctl disable --quiet "$@" 2>/dev/null || true
    fi
}

say "installing the Debian packages ${missing[*]} (for the tests only; no service is started)"
forbid_service_starts
apt-get update --quiet=2 || say "apt-get update failed; trying with the package lists as they are"
for package in "${missing[@]}"; do
    case "$package" in
        postgresql) install_postgresql || true ;;
        etcd-server) install_without etcd-server etcd || true ;;
        podman)
            install_without podman podman.socket podman.service podman-auto-update.timer podman-restart.service || true
            ;;
        docker-registry) install_without docker-registry docker-registry || true ;;
        munge | slurmctld | slurmd) install_without "$package" "$package" || true ;;
        *) install_package "$package" || true ;;
    esac
done

if [ "${1:-}" = slurm ]; then
    slurm_found || say "THE COMPARISONS WITH SLURM WILL BE SKIPPED: slurmctld, slurmd and munge could not be installed."
    exit 0
fi
postgres_found || say "THE POSTGRESQL TESTS WILL BE SKIPPED: postgresql could not be installed."
found etcd || say "THE ETCD TESTS WILL BE SKIPPED: etcd-server could not be installed."
container_programs_found || say "THE CONTAINER TESTS WILL BE SKIPPED: podman, runc, conmon and busybox-static could not be installed."
found docker-registry || say "THE REGISTRY TESTS WILL BE SKIPPED: docker-registry could not be installed."
found chromium || say "THE CONSOLE'S TESTS IN A BROWSER WILL BE SKIPPED: chromium could not be installed."
