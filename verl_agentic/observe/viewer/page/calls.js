"use strict";
// Tool calls of a turn, folded.
(() => {
  const { el } = viewer;

  const pretty = (text) => {
    try {
      return JSON.stringify(JSON.parse(text), null, 2);
    } catch {
      return text;
    }
  };

  const short = (text) => {
    const line = String(text || "").replace(/\s+/g, " ");
    return line.length > 90 ? line.slice(0, 90) + "…" : line;
  };

  const call = (one) => el("details", { class: "call" + (one.is_error ? " failed" : "") },
    el("summary", {},
      el("b", {}, one.name || "(no name)"),
      el("code", { class: "arguments" }, short(one.arguments)),
      one.is_error ? viewer.badge(one.error_kind || "error", "breach") : viewer.badge("ok", "good"),
      el("span", { class: "elapsed" }, viewer.seconds(one.elapsed_s))),
    el("h4", {}, "Arguments"), el("pre", { dir: "auto" }, pretty(one.arguments || "")),
    el("h4", {}, one.is_error ? "Error" : "Result"), el("pre", { dir: "auto" }, one.result || "(nothing)"));

  /** Returns the calls of a turn; null without calls. */
  viewer.calls = (turn) => {
    const calls = turn.calls || [];
    if (!calls.length) return null;
    const title = calls.length === 1 ? "1 call" : calls.length + " calls";
    return el("div", { class: "calls", role: "group", "aria-label": title + " of turn " + turn.index }, calls.map(call));
  };
})();
