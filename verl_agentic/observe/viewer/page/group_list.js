"use strict";
// The list of groups: only lines that are seen are in the page, and lines are fetched by pages.
(() => {
  const { el, svg, byId, number } = viewer;
  const PAGE = 200;
  const HEIGHT = 62;
  const SPARE = 6;
  const frame = byId("list");
  const size = byId("list-size");
  const seen = new Map();
  let pages = new Map();
  let waiting = new Set();
  let asked = 0;
  let total = 0;
  let revision = 0;
  let chosen = -1;
  let range = [0, 1];
  let onChoice = () => {};
  let onNews = () => {};

  const line = (index) => {
    const page = pages.get(Math.floor(index / PAGE));
    return page && page[index % PAGE];
  };

  const fetchPage = async (page) => {
    const key = asked;
    waiting.add(page);
    try {
      const answer = await viewer.source.groups(viewer.state.query(), { offset: page * PAGE, limit: PAGE });
      if (key !== asked) return;
      if (answer.revision !== revision) return onNews();
      pages.set(page, answer.groups);
      for (const index of [...seen.keys()]) if (Math.floor(index / PAGE) === page) drop(index);
      render();
    } catch (error) {
      viewer.say(error.message);
    } finally {
      if (key === asked) waiting.delete(page);
    }
  };

  const drop = (index) => {
    seen.get(index).remove();
    seen.delete(index);
  };

  /** Returns how the rewards of siblings lie between the smallest and the largest of the run. */
  const strip = (rewards) => {
    const [low, high] = range;
    const bins = new Array(20).fill(0);
    for (const reward of rewards) {
      if (reward !== null) bins[Math.min(19, Math.max(0, Math.floor((reward - low) / (high - low) * 20)))] += 1;
    }
    const most = Math.max(...bins, 1);
    return svg("svg", { class: "rewards", width: 100, height: 18, "aria-hidden": "true" },
      svg("line", { x1: 0, x2: 100, y1: 17, y2: 17 }),
      bins.map((count, place) => (count
        ? svg("rect", { x: place * 5, y: 16 - 14 * count / most, width: 4, height: 14 * count / most }) : null)));
  };

  const mostly = (stops) => Object.entries(stops).sort((one, other) => other[1] - one[1]).map(([name]) => name);

  const element = (index) => {
    const group = line(index);
    const style = { id: "group-" + index, role: "option", "aria-setsize": total, "aria-posinset": index + 1, "data-index": index };
    if (!group) return el("div", { ...style, class: "group loading", "aria-busy": "true" }, "…");
    const stops = mostly(group.stops);
    const others = stops.length > 1 ? " +" + (stops.length - 1) : "";
    const part = group.matching < group.rows ? group.matching + " of " + group.rows : group.sessions + "×";
    return el("div", { ...style, class: "group", "aria-selected": index === chosen },
      el("div", { class: "first" },
        el("span", { class: "step" }, group.split === "train" || !group.split ? "" : group.split + " ", "step " + group.step),
        el("bdi", { class: "task", title: group.uid }, group.task_id || group.uid),
        el("span", { class: "reward", title: "mean reward" }, number(group.reward))),
      el("div", { class: "second" },
        strip(group.rewards),
        el("span", { class: "facts" }, part + " · " + number(group.length === null ? null : Math.round(group.length)) + " tok · " + stops[0] + others),
        group.voids ? viewer.badge("void " + group.voids, "void") : null,
        group.hacking.length ? viewer.badge("hacking", "breach", group.hacking.join(", ")) : null,
        group.breaches ? viewer.badge("breach", "breach") : null));
  };

  const render = () => {
    const first = Math.max(0, Math.floor(frame.scrollTop / HEIGHT) - SPARE);
    const last = Math.min(total, Math.ceil((frame.scrollTop + frame.clientHeight) / HEIGHT) + SPARE);
    for (const index of [...seen.keys()]) if (index < first || index >= last) drop(index);
    for (let index = first; index < last; index += 1) {
      const page = Math.floor(index / PAGE);
      if (!pages.has(page) && !waiting.has(page)) fetchPage(page);
      if (seen.has(index)) continue;
      const made = element(index);
      made.style.top = index * HEIGHT + "px";
      size.append(made);
      seen.set(index, made);
    }
  };

  const clear = () => {
    for (const index of [...seen.keys()]) drop(index);
    size.style.height = total * HEIGHT + "px";
    const shown = viewer.list.trajectories;
    byId("count").textContent = total ? number(total) + " groups · " + number(shown) + " rows" : "nothing matches";
  };

  const mark = (index) => {
    const old = seen.get(chosen);
    if (old) old.setAttribute("aria-selected", "false");
    chosen = index;
    const now = seen.get(index);
    if (now) now.setAttribute("aria-selected", "true");
    if (index >= 0) frame.setAttribute("aria-activedescendant", "group-" + index);
    else frame.removeAttribute("aria-activedescendant");
  };

  const reveal = (index) => {
    const top = index * HEIGHT;
    if (top < frame.scrollTop) frame.scrollTop = top;
    else if (top + HEIGHT > frame.scrollTop + frame.clientHeight) frame.scrollTop = top + HEIGHT - frame.clientHeight;
    render();
  };

  const around = (group) => (group && group.uid !== undefined
    ? { around_split: group.split, around_step: group.step, around_uid: group.uid } : {});

  viewer.list = {
    trajectories: 0,

    init(choice, news) {
      onChoice = choice;
      onNews = news;
      let isPlanned = false;
      frame.addEventListener("scroll", () => {
        if (isPlanned) return;
        isPlanned = true;
        requestAnimationFrame(() => { isPlanned = false; render(); });
      }, { passive: true });
      frame.addEventListener("click", (event) => {
        const hit = event.target.closest(".group");
        if (hit) viewer.list.choose(Number(hit.dataset.index));
      });
      new ResizeObserver(render).observe(frame);
    },

    setRange(low, high) { range = low === null ? [0, 1] : [Math.min(low, 0), high > low ? high : low + 1]; },

    /** Updates the list. The open group keeps its place on the screen; returns its number, or -1. */
    async load(group, { keepsPlace = false } = {}) {
      asked += 1;
      const key = asked;
      const anchor = keepsPlace ? line(Math.floor(frame.scrollTop / HEIGHT)) : null;
      const shift = frame.scrollTop % HEIGHT;
      frame.setAttribute("aria-busy", "true");
      const query = viewer.state.query();
      const answer = await viewer.source.groups(query, { offset: 0, limit: PAGE, ...around(group) });
      const top = anchor ? await viewer.source.groups(query, { offset: 0, limit: 1, ...around(anchor) }) : null;
      if (key !== asked) return null;
      frame.removeAttribute("aria-busy");
      pages = new Map([[0, answer.groups]]);
      waiting = new Set();
      ({ total, revision } = answer);
      viewer.list.trajectories = answer.trajectories;
      clear();
      const place = answer.place === null || answer.place === undefined ? -1 : answer.place;
      if (top && top.place !== null) frame.scrollTop = top.place * HEIGHT + shift;
      else if (!keepsPlace) frame.scrollTop = 0;
      render();
      mark(place);
      if (place >= 0 && !keepsPlace) reveal(place);
      return place;
    },

    /** Looks at a group by its number in the list, or at the nearest that there is. */
    async choose(index) {
      if (!total) return;
      const wanted = Math.min(total - 1, Math.max(0, index));
      mark(wanted);
      reveal(wanted);
      if (!line(wanted)) {
        const key = asked;
        await fetchPage(Math.floor(wanted / PAGE));
        if (key !== asked || chosen !== wanted) return;
      }
      if (line(wanted)) onChoice(line(wanted));
    },

    /** Looks at the next group, or with -1 at the one before. */
    move: (by) => viewer.list.choose(chosen < 0 ? 0 : chosen + by),
    chosen: () => chosen,
    total: () => total,
  };
})();
