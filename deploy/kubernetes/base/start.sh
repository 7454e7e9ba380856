#!/bin/sh
# Runs its arguments with the settings that follow from a pod's number: its name, its share of the rows, and as neighbour
# the next pod on the ring. The last one dials the first; a link serves both of its ends.
set -eu

service=${POD_NAME%-*}
number=${POD_NAME##*-}
clients=$SEEDFLOOD__RUN__CLIENTS
next=$(((number + 1) % clients))

export SEEDFLOOD__NODE__NAME="$POD_NAME"
export SEEDFLOOD__NODE__SHARD="$((number + 1))/$clients"
export SEEDFLOOD__PEERS="[{\"address\": \"$service-$next.$service:7070\"}]"
exec "$@"
