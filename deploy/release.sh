#!/usr/bin/env bash
# Builds the programs of a release, and a file with their checksums:
#
#	deploy/release.sh v1.2.3 DIRECTORY [OS/ARCH...]
#
# Go stamps a program with its commit, and with the version that a tag of the commit has. For a
# module in a subdirectory that is the tag cmd/hybridlimit/v1.2.3, and not v1.2.3. So the script
# builds in a clone of its own, in which it sets that tag: it needs no tag here, and takes nothing
# that is not committed.
set -euo pipefail

version=${1:?which version} out=${2:?which directory}
shift 2
[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] || { echo "$version is no version like v1.2.3" >&2; exit 2; }
[ $# -gt 0 ] || set -- linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64

root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$out"
out=$(cd "$out" && pwd)
clone=$(mktemp -d)
trap 'rm -rf "$clone"' EXIT
git clone --quiet --no-tags --no-checkout "$root" "$clone"
git -C "$clone" checkout --quiet --detach "$(git -C "$root" rev-parse HEAD)"
git -C "$clone" tag "cmd/hybridlimit/$version"

for target; do
  suffix=""
  [ "${target%/*}" != windows ] || suffix=.exe
  file=hybridlimit-$version-${target%/*}-${target#*/}$suffix
  echo "$file"
  (
    cd "$clone/cmd/hybridlimit"
    CGO_ENABLED=0 GOWORK=off GOOS=${target%/*} GOARCH=${target#*/} \
      go build -trimpath -buildvcs=true -ldflags="-s -w" -o "$out/$file" .
  )
done
(cd "$out" && sha256sum "hybridlimit-$version-"* >SHA256SUMS)
