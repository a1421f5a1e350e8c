"use strict";

const test = require("node:test");
const assert = require("node:assert");
const { merge, covered } = require("../quill/intervals.js");

test("merge of separate intervals", () => {
  assert.deepEqual(merge([[4, 5], [1, 2]]), [[1, 2], [4, 5]]);
});

test("merge of an interval inside another", () => {
  assert.deepEqual(merge([[1, 9], [2, 3]]), [[1, 9]]);
});

test("merge of intervals that touch", () => {
  assert.deepEqual(merge([[2, 3], [1, 2]]), [[1, 3]]);
});

test("covered counts common parts once", () => {
  assert.equal(covered([[0, 5], [8, 10]]), 7);
});
