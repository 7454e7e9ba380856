"""How values of the protocol are spelled as protobuf messages, once, for the wire and the journal.

What is decoded here has the shapes and ranges that the protocol promises; all else raises PeerError. `flood_pb2*` is
generated from proto/seedflood/wire/flood.proto by proto/generate.sh: committed, never edited.
"""
