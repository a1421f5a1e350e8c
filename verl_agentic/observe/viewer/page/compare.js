"use strict";
// Several runs beside each other: outcomes, keys of the configs, means, and the episodes of one task.
(() => {
  const { el, byId, number, source, state } = viewer;
  const NOT_COUNTED = { findings: [], onStep: () => {} };
  let data = null;

  const table = (heads, lines) => el("div", { class: "scroll" }, el("table", { class: "ledger" },
    el("thead", {}, el("tr", {}, ["", ...heads].map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", {}, lines.map(([label, cells]) => el("tr", {}, el("th", { scope: "row" }, label), cells.map((cell) => el("td", {}, cell)))))));

  const section = (title, content) => [el("h2", {}, title), content];
  const none = (text) => el("p", { class: "note" }, text);

  /** Returns what an episode's policy and environment wrote. */
  const transcript = ({ prompt, turns }) => [
    prompt.filter(({ role }) => role !== "system").map(({ content }) => el("pre", { dir: "auto" }, content || "")),
    turns.map(({ text, observations }) => [
      el("pre", { class: "turn", dir: "auto" }, text || ""),
      (observations || []).map((observation) => el("pre", { class: "observation", dir: "auto" }, observation))])];

  /** Returns the newest group of a task in a run: its siblings, and the transcript of the chosen one. */
  const column = async (task, run) => {
    const rows = (await source.episodes(task, run)).filter(({ place }) => place === "last");
    const box = el("section", { class: "box" });
    const rewards = [0, ...rows.map(({ reward }) => reward || 0)];
    const show = async (row) => {
      const record = await source.trajectory(row, run);
      viewer.fill(box,
        el("h3", {}, viewer.runs[run] + " · step " + row.step + " "),
        el("nav", { class: "cards", "aria-label": "Siblings" }, rows.map((other) => {
          const card = viewer.siblings.card(other, Math.min(...rewards), Math.max(...rewards), row);
          card.addEventListener("click", () => show(other));
          return card;
        })),
        transcript(record),
        el("button", { on: { click: () => { state.set({ tab: null }); viewer.openRun(run, row); } } }, "All about this trajectory"));
    };
    if (rows.length) await show(rows[0]);
    else viewer.fill(box, el("h3", {}, viewer.runs[run]), none("The run has no training episode of this task."));
    return box;
  };

  const showTask = async (task) => {
    state.set({ task });
    const columns = await Promise.all(viewer.runs.map((_, run) => column(task, run)));
    if (task === state.get("task")) viewer.fill(byId("task-episodes"), el("h2", {}, "Newest episodes of ", el("bdi", {}, task)), el("div", { class: "boxes" }, columns));
  };

  const tasks = () => {
    if (!data.tasks.length) return none("The last steps of the runs have no task in common.");
    const lines = data.tasks.map(([task, outcomes]) => [el("button", { class: "link-button", on: { click: () => showTask(task) } }, task), outcomes.map(number)]);
    return [none(data.num_tasks + " tasks in the last steps of all runs, the largest differences first. A click shows episodes beside each other."), table(viewer.runs, lines)];
  };

  viewer.compare = {
    async draw() {
      viewer.plots.forget();
      try {
        data = data || await source.comparison();
      } catch (error) {
        return viewer.fill(byId("compare"), el("p", { class: "nothing" }, error.message));
      }
      const width = Math.min(760, byId("compare").clientWidth - 30);
      viewer.fill(byId("compare"),
        el("div", { class: "scroll" }, viewer.plots.curve("mean outcome of training episodes, 95 % interval", { ...NOT_COUNTED, series: data.curves, width })),
        section("Keys of the configs that differ", data.config.length ? table(viewer.runs, data.config) : none("None.")),
        section("Means of the last steps", table(viewer.runs, data.figures)),
        section("Tasks of all runs", tasks()),
        el("div", { id: "task-episodes" }));
      return state.get("task") ? showTask(state.get("task")) : null;
    },

    /** Shows the episodes of a task beside each other. */
    async open(task) {
      state.set({ task });
      await viewer.openTab("compare");
      byId("task-episodes").scrollIntoView();
    },

    /** The runs have written: the comparison is read again. */
    forget() { data = null; },
  };
})();
