#!/bin/sh
# host.sh SETTINGS KEY runs the host of this pod, with the settings of its number from the folder SETTINGS. The first host
# also exports the model, since all end with the same.
#
# The key is put back without the mark `identity.pem.fresh` of `init`: if the state is ever lost, the node must know that
# it may have published before.
set -eu

state=$SEEDFLOOD__NODE__STATE
[ -e "$state/identity.pem" ] || install -m 600 "$2" "$state/identity.pem"
[ "$JOB_COMPLETION_INDEX" != 0 ] || export SEEDFLOOD__NODE__EXPORT="$state/model"

seedflood-node --peers "$1/host$JOB_COMPLETION_INDEX.toml" &
node=$!
# A node that is stopped says goodbye, and exits with 0. Then the others would end without it, and the Job would count it
# as finished. But a pod that is moved comes back. So its node goes without a word, like one that crashes.
trap 'kill -KILL "$node" || true; exit 75' TERM
wait "$node"
