#!/usr/bin/env bash
# Checks docker/ and deploy/ with the tools of those who will read them. A tool that is not installed is named, and only its
# check is missing; any fault that was found is an exit code of 1.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PWD/.venv/bin:$PATH
missing=() failed=()
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

has() {
  local tool
  for tool; do
    command -v "$tool" >/dev/null || { missing+=("$tool"); return 1; }
  done
}

check() {
  echo "-- $*" >&2
  "$@" || failed+=("$*")
}

if has hadolint; then
  check hadolint docker/Dockerfile
fi

if has shellcheck; then
  check shellcheck .ci/run proto/generate.sh tools/*.sh deploy/kubernetes/*/*.sh deploy/slurm/*.sbatch
fi

if has yamllint; then
  check yamllint --strict .yamllint.yaml docker deploy
fi

if has promtool; then
  check promtool check rules deploy/prometheus/alerts.yaml
  check promtool check config deploy/prometheus/scrape.yaml
  check promtool test rules deploy/prometheus/alerts_test.yaml
fi

if has kubectl kubernetes-validate; then
  # A copy, for the manifests of closed runs hold what `init` makes.
  cp -r deploy/kubernetes "$scratch"
  (cd "$scratch/kubernetes/closed" && seedflood init seedflood-0=localhost:7070 seedflood-{1,2} --out run >/dev/null)
  (cd "$scratch/kubernetes/jobset" && seedflood init host0=localhost:7070 host{1,2} --out run >/dev/null)
  for folder in "$scratch"/kubernetes/*/; do
    manifests=$scratch/$(basename "$folder").yaml
    check kubectl kustomize "$folder" --output "$manifests"
    check kubernetes-validate --quiet --strict "$manifests"
  done
fi

if has systemd-analyze; then
  # The command it starts is not on this machine, and that it is missing would be a fault.
  unit=$scratch/seedflood-node.service
  sed 's|^ExecStart=[^ ]*|ExecStart=/bin/true|' deploy/systemd/seedflood-node.service >"$unit"
  check systemd-analyze verify "$unit"
  check systemd-analyze security --offline=true --threshold=20 --no-pager "$unit" >/dev/null
  mkdir "$unit.d"
  cp deploy/systemd/gpu.conf "$unit.d"
  check systemd-analyze verify "$unit"
fi

if docker compose version >/dev/null 2>&1; then
  check docker compose --file docker/compose.yaml config --quiet
elif has docker-compose; then
  check docker-compose --file docker/compose.yaml config --quiet
fi

((${#missing[@]} == 0)) || echo "not checked, for want of: ${missing[*]}"
if ((${#failed[@]})); then
  printf 'failed: %s\n' "${failed[@]}"
  exit 1
fi
echo "no fault found"
