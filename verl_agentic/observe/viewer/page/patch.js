"use strict";
// The patch of an episode on a repository: its diff, files and tests.
(() => {
  const { el } = viewer;
  const KINDS = [["+++", "file"], ["---", "file"], ["diff ", "file"], ["@@", "hunk"], ["+", "added"], ["-", "removed"]];
  const MAX_LINES = 5000;

  const kindOf = (line) => (KINDS.find(([start]) => line.startsWith(start)) || ["", "kept"])[1];

  const diff = (patch) => {
    const lines = patch.split("\n").slice(0, MAX_LINES);
    return el("pre", { class: "diff", dir: "ltr", tabindex: "0", "aria-label": "Diff" }, lines.map((line) => el("span", { class: kindOf(line) }, line + "\n")));
  };

  const plural = (count, name) => count + " " + name + (count === 1 ? "" : "s");
  const entries = (named) => Object.entries(named || {});
  const passed = (tests) => tests.filter(([, outcome]) => outcome === "passed").length;

  const rows = (pairs, isGood) => el("table", { class: "facts-table" }, el("tbody", {}, pairs.map(([name, value]) => el("tr", {},
    el("td", {}, viewer.badge(value, isGood(value) ? "good" : "breach")), el("td", {}, el("bdi", {}, name))))));

  const part = (title, content) => (content ? [el("h4", {}, title), content] : null);
  const list = (names) => (names && names.length ? el("ul", {}, names.map((name) => el("li", {}, el("bdi", {}, name)))) : null);
  const tests = (named) => (entries(named).length ? rows(entries(named), (outcome) => outcome === "passed") : null);

  const title = (details) => {
    const fixed = entries(details.f2p);
    const kept = details.p2p_passed || 0;
    const lines = (details.patch || "").split("\n").filter((line) => ["added", "removed"].includes(kindOf(line))).length;
    if (!details.is_graded) return "Patch · not submitted, not graded · " + plural(lines, "changed line");
    return "Patch · " + passed(fixed) + " of " + fixed.length + " tests fixed · " + kept + " of " + (kept + entries(details.p2p).length)
      + " tests kept · " + plural(lines, "changed line") + " · " + plural(entries(details.refused).length, "refused file");
  };

  const why = (details) => entries(details.why).map(([name, text]) => el("details", { class: "fold" }, el("summary", {}, el("bdi", {}, name)), el("pre", { dir: "auto" }, text)));

  /** Returns the patch of an episode with the verdict on it; null without one. */
  viewer.patch = (details) => {
    if (!details || typeof details.patch !== "string") return null;
    const forged = [...(details.forged || []), ...(details.tampered || [])];
    return el("details", { class: "fold patch", open: true }, el("summary", {}, title(details)),
      forged.length ? el("p", { class: "banner breach" }, el("b", {}, "Forged results: "), forged.join(", ")) : null,
      part("Tests to fix", tests(details.f2p)), part("Broken tests", tests(details.p2p)),
      why(details).length ? part("Messages of failures", why(details)) : null,
      part("Accepted files", list(details.accepted)),
      part("Refused files", entries(details.refused).length ? rows(entries(details.refused), () => false) : null),
      part("Suspicious words", list(details.flags)),
      part("Diff", details.patch ? diff(details.patch) : el("p", {}, details.patch_chars ? "The diff has " + details.patch_chars + " characters and is not stored." : "No accepted file is changed.")));
  };
})();
