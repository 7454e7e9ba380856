"""What liars send of a step instead of what they measured."""

from seedflood.protocol.seedflood.bundles import LOSS_BYTES


def opposite(compression, told):
    """With signs turned, and the largest sizes. Rows of embeddings are told with their numbers, which stay."""
    end = len(told) - LOSS_BYTES
    signs = bytearray(255 - byte for byte in told[compression.exponents : end])
    for start in range(compression.rows_at, end, compression.sparse.row_bytes):
        number = slice(start - compression.exponents, start - compression.exponents + 2)
        signs[number] = told[start : start + 2]
    return bytes([compression.exponent_max]) * compression.exponents + bytes(signs) + told[end:]
