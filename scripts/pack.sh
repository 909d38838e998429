#!/usr/bin/env bash
# Packs a build into one archive, writes its checksum beside it, and checks that it is self-contained (scripts/check_archive.py).
#   scripts/pack.sh [PRESET]      release by default; the archive is written to build/PRESET
set -euo pipefail
CDPATH="" cd "$(dirname "${BASH_SOURCE[0]}")/.."
if (($# > 1)) || [[ "${1-release}" == -* || -z "${1-release}" ]]; then
  echo "usage: scripts/pack.sh [PRESET]" >&2
  exit 2
fi
build=$PWD/build/${1:-release}
umask 022 # CMake gives new folders of the archive the rights of this process; everybody may read them

if [[ ! -f "$build/CPackConfig.cmake" ]]; then
  echo "pack: no build in $build; run cmake --preset ${1:-release} && cmake --build --preset ${1:-release}" >&2
  exit 2
fi
rm -f "$build"/halfmark-*.tar.gz "$build"/halfmark-*.tar.gz.sha256
(cd "$build" && cpack -G TGZ)
archive=$(basename "$build"/halfmark-*.tar.gz)

# The archive must name neither the checkout (it usually contains the build folder) nor HOME.
unwanted=("$PWD")
[[ "$(realpath "$PWD")" == "$PWD" ]] || unwanted+=("$(realpath "$PWD")")
python3 -B scripts/check_archive.py "$build/$archive" --path-of-the-build "${unwanted[@]}"
(cd "$build" && sha256sum "$archive" > "$archive.sha256")
echo "$build/$archive ($(du -h "$build/$archive" | cut -f1)) is self-contained; its checksum is in $archive.sha256"
