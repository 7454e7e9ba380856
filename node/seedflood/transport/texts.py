"""Sentences of others, for our logs and consoles: short, on one line, and without anything that steers a terminal."""


def plain(text: str, characters_max: int) -> str:
    """The beginning of it, with a question mark for every character that is not seen."""
    return "".join(one if one.isprintable() else "?" for one in text[:characters_max])
