#!/usr/bin/env bash
# Fetches the libraries of the status page at their pinned versions, and checks that they are what was reviewed.
#
# The page is served by a node that may have no network, to a browser that may have none either, so its libraries are
# part of the repository. To take a new version: change it here, run with --accept, and look at the difference.
set -euo pipefail

PACKAGES=(
  "uplot@1.6.32 dist/uPlot.iife.min.js dist/uPlot.min.css LICENSE"
)

vendor="$(cd "$(dirname "$0")/../node/seedflood/operations/static/vendor" && pwd)"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

for package in "${PACKAGES[@]}"; do
  read -r pinned files <<<"$package"
  name="${pinned%@*}"
  archive="$(cd "$work" && npm pack --silent --ignore-scripts "$pinned" 2>/dev/null | tail -n 1)"
  mkdir -p "$work/$name" "$work/vendor/$name"
  tar -xzf "$work/$archive" -C "$work/$name" --strip-components=1
  for file in $files; do
    cp "$work/$name/$file" "$work/vendor/$name/$(basename "$file")"
  done
done

cd "$work/vendor"
if [[ "${1:-}" == "--accept" ]]; then
  find . -type f -printf '%P\n' | LC_ALL=C sort | xargs sha256sum >"$vendor/SHA256SUMS"
fi
sha256sum --check --strict --quiet "$vendor/SHA256SUMS"
cp -r . "$vendor/"
chmod -R u=rwX,go=rX "$vendor"
echo "The libraries of the status page are as SHA256SUMS pins them."
