#!/usr/bin/env bash
# Installs the packages that building Tandem on Debian 12 needs (with --tests: testing it, too).
# Ends within milliseconds when nothing is missing. Needs root or sudo only to install.
set -euo pipefail

build_packages=(
  build-essential cmake ninja-build ca-certificates ccache python3 python3-pip
  libboost1.81-dev libssl-dev liburing-dev libzmq3-dev cppzmq-dev nlohmann-json3-dev libpcre2-dev libutf8proc-dev
  libxxhash-dev libabsl-dev prometheus-cpp-dev libspdlog-dev libcli11-dev
  libyaml-cpp-dev libpng-dev libjpeg62-turbo-dev libwebp-dev)
test_packages=(catch2 lld libbenchmark-dev zlib1g-dev python3-venv curl prometheus gdb
  chromium chromium-driver man-db mandoc zsh fish)

packages=("${build_packages[@]}")
[ "${1:-}" = --tests ] && packages+=("${test_packages[@]}")

missing=()
for package in "${packages[@]}"; do
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "missing packages: ${missing[*]}; run as root or install sudo" >&2; exit 1; }
  as_root=(sudo)
fi
echo "installing: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get -qq update
# --no-remove: libboost1.81-dev conflicts with Debian's default Boost 1.74, and whether to replace
# that one is for the machine's owner to decide.
"${as_root[@]}" apt-get -qq install -y --no-remove --no-install-recommends "${missing[@]}" >/dev/null || {
  echo "apt-get could not install: ${missing[*]}" >&2
  echo "If it names libboost-dev: 'apt-get install libboost1.81-dev' replaces Boost 1.74 by 1.81." >&2
  exit 1
}
# Debian's prometheus package starts a service; the tests need only its promtool.
if [ -d /run/systemd/system ] && printf '%s\n' "${missing[@]}" | grep -qx prometheus; then
  "${as_root[@]}" systemctl disable --now prometheus >/dev/null 2>&1 || true
fi
