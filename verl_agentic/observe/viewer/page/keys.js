"use strict";
// Keyboard shortcuts of the page.
(() => {
  const { el, byId } = viewer;
  const NAMES = Object.keys(viewer.tokens.COLOURS);
  const KEYS = [
    ["j  k", "next, previous group"], ["←  →", "sibling to the left, to the right"], ["/", "search texts"],
    ["1 – 6", "colour tokens by " + Object.values(viewer.tokens.COLOURS).map(({ title }) => title.toLowerCase()).join(", ")],
    ["Tab, then arrows", "among tokens: values of one token; ↑ ↓ from block to block"], ["t  c  i  f  b", "trajectories, curves, time, findings, several runs beside each other"],
    ["r", "load new trajectories"], ["Esc", "leave a field, close this"], ["?", "this list"],
  ];

  const help = () => byId("help").showModal();

  const isTyping = (target) => target.closest("input:not([type=radio]):not([type=checkbox]), select, textarea") !== null;

  const onList = () => !byId("panel-trajectories").hidden;

  const act = (event) => {
    const { key } = event;
    if (key === "?") return help();
    if (key === "r") return viewer.refresh();
    const tab = { t: "trajectories", c: "curves", i: "time", f: "findings", b: "compare" }[key];
    if (tab) return viewer.openTab(tab);
    if (key === "/") {
      viewer.openTab("trajectories");
      byId("search").focus();
      return byId("search").select();
    }
    if (!onList()) return false;
    if (key === "j" || key === "k") return viewer.list.move(key === "j" ? 1 : -1);
    if (event.target === byId("list") && (key === "ArrowDown" || key === "ArrowUp")) return viewer.list.move(key === "ArrowDown" ? 1 : -1);
    if (event.target === byId("list") && (key === "Home" || key === "End")) return viewer.list.choose(key === "Home" ? 0 : viewer.list.total() - 1);
    if (key === "ArrowRight" || key === "ArrowLeft") return viewer.siblings.move(key === "ArrowRight" ? 1 : -1);
    const place = Number(key) - 1;
    return NAMES[place] && key.trim() ? viewer.tokens.colour(NAMES[place]) : false;
  };

  viewer.initKeys = () => {
    viewer.fill(byId("help-keys"), KEYS.map(([keys, what]) => [el("dt", {}, keys.split("  ").map((key) => el("kbd", {}, key))), el("dd", {}, what)]));
    byId("help-button").addEventListener("click", help);
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || byId("help").open) return;
      if (event.key === "Escape") {
        viewer.tokens.hideTip();
        return document.activeElement.blur();
      }
      const isTab = event.target.getAttribute && event.target.getAttribute("role") === "tab";
      const isRadio = event.target.type === "radio" && event.key.startsWith("Arrow");
      if (isTyping(event.target) || isRadio || (isTab && event.key.startsWith("Arrow"))) return;
      if (act(event) !== false) event.preventDefault();
    });
  };
})();
