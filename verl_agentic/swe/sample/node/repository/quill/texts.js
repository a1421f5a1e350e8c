"use strict";

/** Returns the words of a text, in lower case, with a separator between them. */
function slug(text, { separator = "-", maxChars = Infinity } = {}) {
  const words = text.toLowerCase().match(/[a-z0-9]+/g) || [];
  let joined = words.join(separator);
  if (joined.length > maxChars) {
    joined = joined.slice(0, maxChars);
    while (joined.endsWith(separator)) {
      joined = joined.slice(0, -separator.length);
    }
  }
  return joined;
}

/** Returns the lines of a text; none is longer than the width, unless a word is. */
function wrap(text, width) {
  const lines = [];
  for (const word of text.split(/\s+/).filter(Boolean)) {
    const last = lines.length - 1;
    if (last >= 0 && lines[last].length + 1 + word.length <= width) {
      lines[last] += " " + word;
    } else {
      lines.push(word);
    }
  }
  return lines;
}

/** Returns a text of at most `width` characters; `mark` shows that it was cut. */
function shorten(text, width, mark = "...") {
  if (text.length <= width) {
    return text;
  }
  return text.slice(0, Math.max(0, width - mark.length)) + mark.slice(0, width);
}

module.exports = { slug, wrap, shorten };
