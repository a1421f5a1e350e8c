"""Texts: slugs, wrapped lines, shortened lines, columns."""

import re
import unicodedata


def slug(text, *, max_chars=0, separator="-"):
    """Returns a text in lower-case letters and digits, joined by a separator; max_chars 0 is no limit."""
    ascii_text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    words = re.findall(r"[a-z0-9]+", ascii_text.lower())
    joined = separator.join(words)
    if max_chars and len(joined) > max_chars:
        joined = joined[:max_chars].rstrip(separator)
    return joined


def wrap(text, width):
    """Returns lines of at most `width` characters; a longer word has a line of its own."""
    if width < 1:
        raise ValueError(f"width must be at least 1, got {width}")
    lines, line = [], ""
    for word in text.split():
        if not line:
            line = word
        elif len(line) + 1 + len(word) <= width:
            line += " " + word
        else:
            lines.append(line)
            line = word
    if line:
        lines.append(line)
    return lines


def shorten(text, width, *, mark="..."):
    """Returns a text of at most `width` characters; a mark stands for what is cut off."""
    if len(text) <= width:
        return text
    return text[: max(0, width - len(mark))] + mark[:width]


def columns(rows, *, gap=2):
    """Returns rows of texts as lines with aligned columns."""
    if not rows:
        return []
    count = max(len(row) for row in rows)
    widths = [max((len(row[i]) for row in rows if i < len(row)), default=0) for i in range(count)]
    return [(" " * gap).join(cell.ljust(widths[i]) for i, cell in enumerate(row)).rstrip() for row in rows]
