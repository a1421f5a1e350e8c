"use strict";
// Search, filters and order of the list.
(() => {
  const { el, byId } = viewer;
  const SORTS = {
    step: "step", reward: "mean reward", acc: "mean acc", spread: "spread of rewards", advantage: "largest |advantage|",
    length: "mean length",
  };
  const RANGES = { step: "Step", reward: "Reward", acc: "Acc", advantage: "Advantage", length: "Response tokens" };
  const CHOICES = {
    split: ["Split", "splits"], stop: ["Stop reason", "stops"], tool: ["Tool called", "tools"],
    hacking: ["Attempts at reward hacking", "hacking"], env: ["Environment", "envs"],
  };
  const LISTS = new Set(["tools", "hacking"]);
  let changed = () => {};

  const read = () => {
    const form = byId("filter-form");
    const query = { text: byId("search").value.trim(), sort: byId("sort").value, order: byId("order").dataset.order };
    for (const field of form.querySelectorAll("input, select")) {
      if (field.type === "checkbox") {
        if (field.checked) (query[field.name] = query[field.name] || []).push(field.value);
      } else if (field.value.trim() !== "") query[field.name] = field.value.trim();
    }
    if (query.sort === "step") delete query.sort;
    if (query.order === "desc") delete query.order;
    return Object.fromEntries(Object.entries(query).filter(([, value]) => value !== ""));
  };

  const show = (query) => {
    byId("search").value = query.text || "";
    byId("sort").value = query.sort || "step";
    setOrder(query.order || "desc");
    for (const field of byId("filter-form").querySelectorAll("input, select")) {
      if (field.type === "checkbox") field.checked = (query[field.name] || []).includes(field.value);
      else field.value = query[field.name] || "";
    }
    showCount(query);
  };

  const showCount = (query) => {
    const names = Object.keys(query).filter((name) => !["text", "sort", "order"].includes(name));
    const count = new Set(names.map((name) => name.replace(/_(min|max)$/, ""))).size;
    byId("filters-title").textContent = count ? "Filters · " + count + " on" : "Filters";
    byId("filters").classList.toggle("on", count > 0);
  };

  const setOrder = (order) => {
    const button = byId("order");
    button.dataset.order = order;
    button.textContent = order === "desc" ? "↓" : "↑";
    button.setAttribute("aria-label", (order === "desc" ? "Descending" : "Ascending") + "; turn around");
    button.title = order === "desc" ? "Largest first" : "Smallest first";
  };

  const apply = () => {
    const form = byId("filter-form");
    const wrong = [...form.querySelectorAll("input[data-number]")].find((field) => {
      const isWrong = field.value.trim() !== "" && !Number.isFinite(Number(field.value));
      field.setAttribute("aria-invalid", isWrong);
      return isWrong;
    });
    if (wrong) return viewer.say(wrong.getAttribute("aria-label") + " must be a number");
    const query = read();
    viewer.state.setQuery(query);
    showCount(query);
    changed();
  };

  const range = (name, title) => {
    const field = (end, word) => el("input", {
      name: name + end, "data-number": true, inputmode: "decimal", placeholder: word, "aria-label": title + " " + word,
    });
    return el("div", { class: "range" }, el("span", { class: "name" }, title), field("_min", "from"), el("span", {}, "–"), field("_max", "to"));
  };

  const choice = (name, title, values) => el("fieldset", {},
    el("legend", {}, title),
    values.map((value) => el("label", { class: "chip" }, el("input", { type: "checkbox", name, value }), el("span", {}, value))));

  const flag = (name, title) => el("label", { class: "range" }, el("span", { class: "name" }, title),
    el("select", { name }, el("option", { value: "" }, "any"), el("option", { value: "yes" }, "yes"), el("option", { value: "no" }, "no")));

  const build = (about) => {
    const choices = Object.entries(CHOICES).filter(([, [, values]]) => about[values].length > 1 || LISTS.has(values) && about[values].length);
    viewer.fill(byId("filter-form"),
      el("div", { class: "range" }, el("label", { class: "name", for: "filter-task" }, "Task, source, uid"),
        el("input", { name: "task", id: "filter-task", placeholder: "contains", class: "wide" })),
      Object.entries(RANGES).map(([name, title]) => range(name, title)),
      flag("void", "Void"), flag("breach", "Breach of the audit"),
      choices.map(([name, [title, values]]) => choice(name, title, about[values])),
      el("button", { type: "button", id: "reset", on: { click: () => { show({}); apply(); } } }, "Reset filters"));
  };

  viewer.filters = {
    /** Builds the controls; `onChange` is called with every change. */
    init(about, onChange) {
      changed = onChange;
      viewer.fill(byId("sort"), Object.entries(SORTS).map(([value, title]) => el("option", { value }, title)));
      viewer.filters.update(about);
      const soon = viewer.calm(apply, 300);
      byId("search").addEventListener("input", soon);
      byId("sort").addEventListener("change", apply);
      byId("filter-form").addEventListener("input", soon);
      byId("filter-form").addEventListener("submit", (event) => { event.preventDefault(); apply(); });
      byId("order").addEventListener("click", () => {
        setOrder(byId("order").dataset.order === "desc" ? "asc" : "desc");
        apply();
      });
    },

    /** Updates the choices, and the filters from the address. */
    update(about) {
      build(about);
      show(viewer.state.query());
    },

    /** Lists the trajectories of one step. */
    showStep(step) {
      show({ step_min: String(step), step_max: String(step) });
      apply();
    },
  };
})();
