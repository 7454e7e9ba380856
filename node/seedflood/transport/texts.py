"""Makes texts from peers safe for logs and consoles: short, on one line, without control characters for a terminal."""


def plain(text: str, characters_max: int) -> str:
    """The first characters of a text, with a question mark for each one that is not printable."""
    return "".join(one if one.isprintable() else "?" for one in text[:characters_max])
