#!/usr/bin/env bash
# Builds and tests the checkout on bare systems, as README promises. debootstrap creates a minimal root folder, in which
# scripts/run.sh and the fast release tests run, once as root and once as a user without root.
#   scripts/bare_systems.sh [SYSTEM...]      debian-12 debian-13 ubuntu-24.04; all of them by default
# A system that cannot be created here is reported as SKIPPED with the reason. Roots and packages are kept in
# $HALFMARK_SYSTEMS, by default ~/.cache/halfmark/systems. Exit codes: 0 no system failed, 1 one failed, 2 wrong command.
set -euo pipefail
CDPATH="" cd "$(dirname "${BASH_SOURCE[0]}")/.."

# name, distribution as apt names its origin, release, archive areas
known_systems=(
  "debian-12 Debian bookworm main"
  "debian-13 Debian trixie main"
  "ubuntu-24.04 Ubuntu noble main,universe"
)
cache=${HALFMARK_SYSTEMS:-${XDG_CACHE_HOME:-$HOME/.cache}/halfmark/systems}
logs=${HALFMARK_LOGS:-build/logs}
folder="half mark" # a space in the path: user folders have them

names=()
for row in "${known_systems[@]}"; do names+=("${row%% *}"); done
wanted=("$@")
((${#wanted[@]} > 0)) || wanted=("${names[@]}")
for name in "${wanted[@]}"; do
  if [[ " ${names[*]} " != *" $name "* ]]; then
    echo "usage: scripts/bare_systems.sh [${names[*]}]; not known: $name" >&2
    exit 2
  fi
done

umask 022 # the user without root must be able to read the new systems

skipped() {
  echo "SKIPPED $1: $2"
}

# The package archive that apt uses here, so that the new systems use the same mirror.
mirror_of() { # ORIGIN
  # shellcheck disable=SC2016 # apt fills the variables in
  apt-get indextargets --format '$(ORIGIN) $(REPO_URI) $(CODENAME)' 'Created-By: Packages' 2> /dev/null |
    awk -v origin="$1" '$1 == origin && $3 !~ /-/ { print $2; exit }'
}

make_base() { # NAME ORIGIN RELEASE AREAS: the pristine root
  local name=$1 mirror=$2 release=$3 areas=$4 base=$cache/$1/base
  [[ -e "$base/.complete" ]] && return
  rm -rf "$base"
  mkdir -p "$base" "$cache/$name/debs/partial"
  debootstrap --variant=minbase --components="$areas" --cache-dir="$(realpath "$cache/$name/debs")" "$release" "$base" "$mirror"
  touch "$base/.complete"
}

# Runs in its own mount and process namespace, so that no mount and no process is left over, however it ends.
inside() { # ROOT COMMAND...: runs the command as root, with ROOT as the root folder
  local root=$1
  shift
  # shellcheck disable=SC2016 # expanded in the inner shell
  unshare --mount --pid --fork --kill-child bash -euc '
    root=$1
    shift
    mount -t proc proc "$root/proc"
    mount -t sysfs -o ro sysfs "$root/sys"
    mount --rbind /dev "$root/dev"
    mount --bind "$root/../debs" "$root/var/cache/apt/archives"
    mount --bind "$root/../ccache" "$root/var/cache/ccache"
    exec chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 \
      CCACHE_DIR=/var/cache/ccache CCACHE_UMASK=000 CCACHE_MAXSIZE=1G "$@"' bash "$root" "$@"
}

# What a user types after a clone, then the tests that are not slow.
build_and_test() { # ROOT USER HOME
  local root=$1 user=$2 home=$3
  # shellcheck disable=SC2016
  inside "$root" su -s /bin/bash "$user" -c '
    set -euo pipefail
    cd "$0/$1"
    ./scripts/run.sh --suite smoke
    cmake --preset release -DHALFMARK_TEST_SHARDS=8 > build/release/logs/configure-tests.log
    cmake --build --preset release --parallel "$(nproc)" > build/release/logs/build-tests.log 2>&1 || { tail -n 60 build/release/logs/build-tests.log; exit 1; }
    ctest --test-dir build/release --parallel "$(nproc)" --output-on-failure --no-tests=error -LE slow --progress \
      > build/release/logs/tests.log 2>&1 || { tail -n 150 build/release/logs/tests.log; exit 1; }
    tail -n 3 build/release/logs/tests.log' "$home" "$folder"
}

try_system() { # NAME ORIGIN RELEASE AREAS
  local name=$1 mirror=$2 release=$3 areas=$4 root=$cache/$1/root
  make_base "$name" "$mirror" "$release" "$areas"
  mkdir -p "$cache/$name/ccache"
  chmod 1777 "$cache/$name/ccache"
  rm -rf --one-file-system "$root"
  cp -a --reflink=auto "$cache/$name/base" "$root"
  mkdir -p "$root/var/cache/ccache"
  cp --dereference /etc/resolv.conf "$root/etc/resolv.conf"

  inside "$root" useradd --create-home somebody
  local home
  for home in /root /home/somebody; do
    mkdir -p "$root$home/$folder"
    git ls-files -z | tar --create --null --files-from=- | tar --extract --no-same-owner -C "$root$home/$folder"
  done
  inside "$root" chown -R somebody: "/home/somebody/$folder"

  # ccache only makes a second run minutes shorter; scripts/setup.sh does not install it.
  inside "$root" apt-get -qq update
  inside "$root" env DEBIAN_FRONTEND=noninteractive apt-get -qq -y install --no-install-recommends ccache
  echo "== $name as root"
  build_and_test "$root" root /root
  echo "== $name as a user without root"
  build_and_test "$root" somebody /home/somebody
  # shellcheck disable=SC2016
  inside "$root" bash -c '. /etc/os-release; echo "$PRETTY_NAME $(cat /etc/debian_version), g++ $(g++ -dumpfullversion), oneDNN $(dpkg-query -W -f "\${Version}" libdnnl-dev), CMake $(cmake --version | sed -n "1s/.* //p")"'
  rm -rf --one-file-system "$root"
}

mkdir -p "$logs"
failed=0
for row in "${known_systems[@]}"; do
  read -r name origin release areas <<< "$row"
  [[ " ${wanted[*]} " == *" $name "* ]] || continue
  if ((EUID != 0)); then
    skipped "$name" "only root can create a root folder for another system"
  elif ! command -v debootstrap > /dev/null; then
    skipped "$name" "no debootstrap (scripts/setup.sh --dev installs it)"
  elif ! git ls-files --error-unmatch scripts/run.sh > /dev/null 2>&1; then
    skipped "$name" "no git, or not a git checkout, so the list of its files is unknown"
  elif ! unshare --mount true 2> /dev/null; then
    skipped "$name" "this container does not allow mounts"
  elif mirror=$(mirror_of "$origin"); [[ -z "$mirror" ]]; then
    skipped "$name" "apt has no archive of $origin configured"
  else
    log=$PWD/$logs/bare-$name.log
    status=0
    # A separate process, so that `set -e` is in effect inside.
    ( set -euo pipefail; try_system "$name" "$mirror" "$release" "$areas" ) > "$log" 2>&1 &
    wait $! || status=$?
    if ((status == 0)); then
      echo "$name: passed, $(tail -n 1 "$log")"
    elif [[ ! -e "$cache/$name/base/.complete" ]]; then
      skipped "$name" "debootstrap failed: $(grep -E '^(E|W):' "$log" | tail -n 1)"
    else
      failed=1
      tail -n 100 "$log"
      echo "$name: FAILED, the whole log: $log"
    fi
  fi
done
exit "$failed"
