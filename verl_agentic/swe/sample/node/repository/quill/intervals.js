"use strict";

/** Returns sorted intervals that neither overlap nor touch. */
function merge(intervals) {
  const merged = [];
  for (const [start, end] of [...intervals].sort((a, b) => a[0] - b[0])) {
    const last = merged[merged.length - 1];
    if (last && start <= last[1]) {
      last[1] = Math.max(last[1], end);
    } else {
      merged.push([start, end]);
    }
  }
  return merged;
}

/** Returns the length of all intervals together; common parts count once. */
function covered(intervals) {
  return merge(intervals).reduce((sum, [start, end]) => sum + end - start, 0);
}

module.exports = { merge, covered };
