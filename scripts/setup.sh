#!/usr/bin/env bash
# Installs the packages halfmark needs on Debian 12 and 13 or Ubuntu 24.04. If all are installed, it
# ends at once and needs neither root nor network.
#   scripts/setup.sh          to build and run
#   scripts/setup.sh --dev    also clang and its tools, for scripts/test.sh
# HALFMARK_SETUP=skip turns it off, for systems whose packages have other names.
set -euo pipefail

packages=(
  build-essential cmake ninja-build
  libdnnl-dev libopenblas-dev libfmt-dev nlohmann-json3-dev libcli11-dev libpugixml-dev
  libjpeg-dev libpng-dev # pictures of data sets
  libboost-dev libgtest-dev libgmock-dev
  libbenchmark-dev
  libbenchmark-tools python3-scipy # compare.py of Google Benchmark is in -tools; its statistics need scipy
  python3 python3-numpy python3-matplotlib python3-jsonschema
)
dev_packages=(
  ccache                                    # optional: avoids compiling the same file again
  clang clang-tidy clang-format shellcheck
  libclang-rt-dev llvm # sanitizers, libFuzzer, line coverage
  python3-junitparser libxml2-utils cmark-gfm python3-yaml # read our output files: JUnit, Markdown, workflow files,
  python3-prometheus-client                                # OpenMetrics
  git debootstrap # tests of the revision; creates bare systems to build on (test.sh --all)
)

case "$*" in
  "") ;;
  --dev) packages+=("${dev_packages[@]}") ;;
  *)
    echo "usage: scripts/setup.sh [--dev]" >&2
    exit 2
    ;;
esac

if [[ "${HALFMARK_SETUP:-}" == skip ]]; then
  echo "setup: skipped (HALFMARK_SETUP=skip)"
  exit 0
fi

if ! command -v dpkg-query > /dev/null || ! command -v apt-get > /dev/null; then
  echo "setup: not Debian or Ubuntu: install what these Debian packages hold, then set HALFMARK_SETUP=skip: ${packages[*]}" >&2
  exit 1
fi

# dpkg-query fails for unknown packages; only its output for the others is needed.
installed=$(dpkg-query --show --showformat '${db:Status-Status} ${Package}\n' "${packages[@]}" 2> /dev/null || true)
missing=()
for package in "${packages[@]}"; do
  grep -qxF "installed $package" <<< "$installed" || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  echo "setup: all ${#packages[@]} packages are installed"
  exit 0
fi

as_root=()
if ((EUID != 0)); then
  # Without a terminal sudo cannot ask for a password: use it only if it needs none.
  if command -v sudo > /dev/null && { [[ -t 0 ]] || sudo -n true 2> /dev/null; }; then
    as_root=(sudo)
  else
    echo "setup: missing ${missing[*]}; root is needed and sudo cannot be used; run as root: apt-get update && apt-get install ${missing[*]}" >&2
    exit 1
  fi
fi

apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 apt-get -q -y)
echo "setup: installing ${missing[*]}"
if ! "${apt[@]}" update || ! "${apt[@]}" install --no-install-recommends "${missing[@]}"; then
  echo "setup: apt-get failed; on Ubuntu the archive component 'universe' must be enabled. Missing: ${missing[*]}" >&2
  exit 1
fi
