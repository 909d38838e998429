#!/usr/bin/env bash
# Packs a build into one archive and checks that the archive stands alone: unpacked elsewhere, every library that a bare
# machine lacks must come from the archive itself, and the program must start.
#   scripts/pack.sh [PRESET]      release by default; the archive lies in build/PRESET
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=$PWD/build/${1:-release}

if [[ ! -f "$build/CPackConfig.cmake" ]]; then
  echo "pack: no build in $build; cmake --preset ${1:-release} && cmake --build --preset ${1:-release}" >&2
  exit 2
fi
rm -f "$build"/halfmark-*.tar.gz
(cd "$build" && cpack -G TGZ)
archive=$(ls "$build"/halfmark-*.tar.gz)

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
tar -xzf "$archive" -C "$place" --strip-components=1
unset LD_LIBRARY_PATH
if [[ ! -x "$place/bin/halfmark" ]]; then
  echo "pack: no bin/halfmark in $archive"
  exit 1
fi

# What may come from the machine: the C and C++ run time, and for the plugin what belongs to the GPU.
run_time='linux-vdso|ld-linux|lib(c|m|mvec|pthread|dl|rt|resolv)\.so|libstdc\+\+|libgcc_s'
gpu='lib(cuda|cublas|cudnn|nv|nccl)'
failed=0
for file in "$place"/bin/* "$place"/lib/*.so*; do
  name=${file#"$place"/}
  # Libraries that we bundle find their own libraries through the program that loads them, so alone they are not looked at.
  [[ $name == bin/* || $name == *halfmark* ]] || continue
  strangers=$(ldd "$file" | grep -vE "$run_time|$gpu" | grep -vF "$place/" || true)
  if [[ -n "$strangers" ]]; then
    echo "pack: $name takes from outside the archive:"
    echo "$strangers"
    failed=1
  fi
done
((failed == 0)) || exit 1

(cd / && "$place/bin/halfmark" --help > /dev/null) || {
  echo "pack: the unpacked program does not start"
  exit 1
}
echo "$archive ($(du -h "$archive" | cut -f1)) stands alone"
