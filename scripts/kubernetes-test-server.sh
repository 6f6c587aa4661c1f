#!/usr/bin/env bash
# A real Kubernetes control plane for tests and benchmarks: builds kube-apiserver, kube-controller-manager,
# kube-scheduler and kubectl from Debian's source package, once, and prints the folder that they are in.
# Needs root on Debian, for the compiler. The build takes several minutes and 3 GB while it runs; one that was
# interrupted continues. MOORING_KUBERNETES_FOLDER names another folder.
set -euo pipefail

PROGRAMS=(kube-apiserver kube-controller-manager kube-scheduler kubectl)
cache="${MOORING_KUBERNETES_FOLDER:-${XDG_CACHE_HOME:-$HOME/.cache}/mooring-tests/kubernetes}"

say() {
    printf 'kubernetes-test-server: %s\n' "$*" >&2
}

built() {
    for program in "${PROGRAMS[@]}"; do
        [ -x "$cache/$program" ] || return 1
    done
}

if built; then
    printf '%s\n' "$cache"
    exit 0
fi
if ! command -v apt-get >/dev/null || [ ! -e /etc/debian_version ] || [ "$(id -u)" -ne 0 ]; then
    say "KUBERNETES CANNOT BE BUILT HERE: this needs Debian, and root to install the compiler."
    exit 1
fi

mkdir -p "$cache"
exec 9>"$cache/.lock"
flock 9
if built; then
    printf '%s\n' "$cache"
    exit 0
fi

work="$(mktemp -d "$cache/build.XXXXXX")"
trap 'rm -rf "$work"' EXIT

# The same archives as for packages, but their sources.
mkdir "$work/sources"
for list in /etc/apt/sources.list.d/*.sources; do
    [ -e "$list" ] && sed -E 's/^Types:.*/Types: deb-src/' "$list" >"$work/sources/$(basename "$list")"
done
if [ -s /etc/apt/sources.list ]; then
    sed -E 's/^deb /deb-src /' /etc/apt/sources.list >"$work/sources/main.list"
fi
sources=(-o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$work/sources" -o "Dir::State::lists=$work/lists")

say "installing Debian's golang-go and dpkg-dev"
apt-get update --quiet=2 >&2 || say "apt-get update failed; trying with the package lists as they are"
DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet=2 --no-install-recommends \
    -o DPkg::Lock::Timeout=120 golang-go dpkg-dev </dev/null >&2
say "getting Debian's source package kubernetes"
mkdir -p "$work/lists/partial" "$work/source"
apt-get "${sources[@]}" update --quiet=2 >&2
(cd "$work/source" && apt-get "${sources[@]}" -o APT::Sandbox::User=root source --quiet=2 kubernetes >&2)

tree="$(find "$work/source" -mindepth 1 -maxdepth 1 -type d -name 'kubernetes-*' | head -n 1)"
say "building ${PROGRAMS[*]}"
mkdir "$work/bin"
# As a tree below GOPATH: Debian's vendor folder does not agree with go.mod.
mkdir -p "$work/go/src/k8s.io"
mv "$tree" "$work/go/src/k8s.io/kubernetes"
(
    cd "$work/go/src/k8s.io/kubernetes"
    release="$(dpkg-parsechangelog --show-field Version | sed -E 's/.*really//; s/-[^-]*$//')"
    version="k8s.io/kubernetes/vendor/k8s.io/component-base/version"
    GOROOT="$(go env GOROOT)"
    export GOROOT GOPATH="$work/go" GOCACHE="$cache/go-cache" GOFLAGS=-trimpath GO111MODULE=off CGO_ENABLED=0
    # The one generated file that the source package does not contain: the OpenAPI definitions of the API server.
    go build -o "$work/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen >&2
    inputs="$(grep --recursive --files-with-matches --include='*.go' --fixed-strings '+k8s:openapi-gen=' \
        pkg staging/src/k8s.io | grep -v -E '/(code-generator|sample-apiserver)/|_test\.go$' | xargs -n 1 dirname |
        sort -u | sed 's#^staging/src/#vendor/#; s#^#k8s.io/kubernetes/#' | paste -sd ,)"
    "$work/openapi-gen" --input-dirs "$inputs" --output-package k8s.io/kubernetes/pkg/generated/openapi \
        --output-file-base zz_generated.openapi --go-header-file hack/boilerplate/boilerplate.generatego.txt \
        --report-filename "$work/violations" >&2
    go build -ldflags "-s -w -X $version.gitVersion=v$release" -o "$work/bin/" "${PROGRAMS[@]/#/./cmd/}" >&2
)
mv "$work/bin"/* "$cache/"
rm -rf "$cache/go-cache"
say "built in $cache"
printf '%s\n' "$cache"
