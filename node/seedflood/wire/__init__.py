"""Generated from proto/seedflood/wire/flood.proto by proto/generate.sh: committed, never edited."""
