#!/bin/sh
# Runs its arguments once the key of this pod is in the state folder; there only its owner may read it.
#
# Without the mark `identity.pem.fresh` of `init`: if the volume is ever lost, the key is put back, and the node must know
# that it may have published before.
set -eu

key=$SEEDFLOOD__NODE__STATE/identity.pem
[ -e "$key" ] || install -m 600 /run/seedflood/identity.pem "$key"
exec "$@"
