"""The study: methods of decentralised training, compared on the same rows, by one harness (`python -m study`)."""
