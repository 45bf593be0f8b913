# SPDX-License-Identifier: Apache-2.0
# What the scripts share; sourced, never run.
# shellcheck shell=bash disable=SC2034
set -euo pipefail

repo_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache_dir=${XDG_CACHE_HOME:-${HOME:?HOME is not set}/.cache}/reprise
deps_dir=${REPRISE_DEPS_DIR:-$cache_dir/deps}

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() {
  say "error: $*"
  exit 1
}

# A source file that includes LibTorch needs up to 2 GB to compile, so memory limits the jobs as cores do.
jobs() {
  local cores memory_gb
  cores=$(nproc)
  memory_gb=$(awk '/^MemAvailable:/ { print int($2 / 1048576) }' /proc/meminfo)
  echo $((memory_gb / 2 < 1 ? 1 : memory_gb / 2 < cores ? memory_gb / 2 : cores))
}

# write_section <document> <name> <file>: puts the file between the document's `<!-- name: begin -->` and `... end -->`.
write_section() {
  sed -i -e "/<!-- $2: begin -->/,/<!-- $2: end -->/{//!d}" -e "/<!-- $2: begin -->/r $3" "$1"
}
