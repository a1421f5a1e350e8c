"use strict";

const test = require("node:test");
const assert = require("node:assert");
const { slug, wrap, shorten } = require("../quill/texts.js");

test("slug joins words", () => {
  assert.equal(slug("Alpha, Beta!"), "alpha-beta");
});

test("slug that is cut ends with no separator", () => {
  assert.equal(slug("alpha beta", { maxChars: 6 }), "alpha");
});

test("wrap fills lines", () => {
  assert.deepEqual(wrap("aaa bbb ccc", 7), ["aaa bbb", "ccc"]);
});

test("wrap keeps a long word", () => {
  assert.deepEqual(wrap("a bbbbbbbb c", 4), ["a", "bbbbbbbb", "c"]);
});

test("shorten keeps a short text", () => {
  assert.equal(shorten("abc", 3), "abc");
});

test("shorten to less than the mark", () => {
  assert.equal(shorten("abcdefgh", 2), "..");
});
