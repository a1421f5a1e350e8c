"use strict";
// One trajectory: summary, rewards, timeline and tokens.
(() => {
  const { el, byId, number } = viewer;
  const META = [
    ["uid", "uid"], ["session", "session"], ["row of the session", "index"], ["place", "place"], ["role", "role"], ["agent", "agent"], ["agent loop", "loop"],
    ["environment", "env"], ["task", "task_id"], ["data source", "data_source"], ["seed", "seed"], ["temperature", "temperature"],
    ["oldest weights", "weights_min"], ["newest weights", "weights_max"], ["turns", "num_turns"], ["calls", "num_calls"],
    ["failed calls", "num_call_errors"], ["tokens with mask 1", "num_model_tokens"], ["tokens of the response", "num_response_tokens"],
    ["trained on in step", "trained_step"], ["tokens that reached the update", "num_trained_tokens"], ["rewards that reached the estimator", "paid"],
  ];

  const bars = (parts) => {
    const names = Object.keys(parts);
    const size = Math.max(...names.map((name) => Math.abs(parts[name] || 0)), 1e-9);
    return el("div", { class: "bars", role: "list" }, names.map((name) => {
      const value = parts[name];
      const fill = el("i", { class: value < 0 ? "negative" : "positive" });
      const share = Math.abs(value || 0) / size * 50;
      fill.style.width = share + "%";
      fill.style.left = (value < 0 ? 50 - share : 50) + "%";
      return el("div", { role: "listitem", class: "bar" }, el("span", { class: "name", title: name }, name), el("span", { class: "track", "aria-hidden": "true" }, fill), el("span", { class: "number" }, number(value)));
    }));
  };

  /** Returns its rewards by part: weighted, else raw, else the logged score. */
  const rewardParts = (record) => {
    const said = { ...record.numbers, ...record.score };
    const named = (prefix) => Object.entries(said).filter(([name]) => name.startsWith(prefix)).map(([name, value]) => [name.slice(prefix.length), value]);
    const found = [named("weighted/"), named("reward/"), Object.entries(record.score || {})].find((parts) => parts.length);
    return Object.fromEntries(found || []);
  };

  const fold = (title, ...children) => el("details", { class: "fold" }, el("summary", {}, title), children);
  const text = (value) => el("pre", { dir: "auto" }, value);
  const table = (pairs) => el("table", { class: "facts-table" }, el("tbody", {}, pairs.map(([name, value]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, el("bdi", {}, value))))));

  const numbers = (named) => table(Object.entries(named).map(([name, value]) => [name, number(value)]));

  const banners = ({ meta, traceback }) => [
    meta.breach ? el("p", { class: "banner breach", role: "alert" }, el("b", {}, "Breach of the audit: "), meta.breach) : null,
    (meta.hacking || []).length ? el("p", { class: "banner breach" }, el("b", {}, "Attempts at reward hacking: "), meta.hacking.join(", ")) : null,
    meta.is_void ? el("p", { class: "banner void" }, el("b", {}, "Void: "), "it is not trained on. ", meta.error) : null,
    !meta.is_void && meta.error ? el("p", { class: "banner void" }, el("b", {}, "Error: "), meta.error) : null,
    traceback ? fold("Traceback", text(traceback)) : null,
  ];

  const fact = (name, value, title) => el("div", { class: "fact", title }, el("span", {}, name), el("b", {}, value));

  const copyLink = async (event) => {
    const link = viewer.state.link(viewer.state.key());
    const button = event.currentTarget;
    try {
      await navigator.clipboard.writeText(link);
      button.textContent = "Copied";
      viewer.say("The link is in the clipboard");
    } catch {
      const field = el("input", { class: "link", readonly: true, value: link, "aria-label": "Link to this trajectory" });
      button.after(field);
      field.select();
    }
  };

  const head = (meta) => el("div", { class: "trajectory-head" },
    el("h2", {}, (meta.split === "train" ? "" : meta.split + " ") + "step " + meta.step + " · session " + meta.session + (meta.index ? " · row " + meta.index : "")),
    el("bdi", { class: "task" }, meta.task_id || meta.uid),
    meta.place && meta.place !== "last" ? viewer.badge(meta.place + " row", "", "The last row of the session has the turns and the timeline") : null,
    meta.role && meta.role !== "policy" ? viewer.badge(meta.role) : null,
    meta.agent ? viewer.badge(meta.agent) : null,
    viewer.runs.length > 1 && meta.task_id ? el("button", { on: { click: () => viewer.compare.open(meta.task_id) } }, "This task in all runs") : null,
    el("button", { id: "copy-link", on: { click: copyLink } }, "Copy link"));

  const facts = (meta) => el("div", { class: "facts-line" },
    fact("reward", number(meta.reward)), fact("acc", number(meta.acc), "raw outcome, before shaping"),
    fact("advantage", number(meta.mean_advantage), "mean over the tokens with mask 1"),
    fact("model tokens", number(meta.num_model_tokens)), fact("response", number(meta.num_response_tokens), "tokens, observations included"),
    fact("turns", number(meta.num_turns)), fact("calls", number(meta.num_calls) + (meta.num_call_errors ? " (" + meta.num_call_errors + " failed)" : "")),
    fact("ended", meta.stop_reason || "–"), fact("weights", meta.weights_min === meta.weights_max ? number(meta.weights_max) : meta.weights_min + "–" + meta.weights_max, "version that sampled it"));

  const when = (time) => (time ? new Date(time * 1000).toISOString().replace("T", " ").slice(0, 19) + " UTC" : "–");

  const about = (record) => fold("About", table([...META.filter(([, name]) => record.meta[name] !== "" && record.meta[name] !== null).map(([title, name]) => [title, typeof record.meta[name] === "number" ? number(record.meta[name]) : record.meta[name]]), ["ended at", when(record.meta.time)]]),
    Object.keys(record.numbers).length ? [el("h4", {}, "Counted"), numbers(record.numbers)] : null,
    record.score ? [el("h4", {}, "Scored"), numbers(record.score)] : null);

  const prompt = (record) => fold("Prompt · " + number(record.prompt_tokens) + " tokens",
    record.prompt.map((message) => el("div", { class: "message" }, el("b", {}, message.role + (message.name ? " " + message.name : "")), text(message.content || ""), message.calls ? text(message.calls) : null)),
    record.prompt_text ? [el("h4", {}, "As the policy saw it"), text(record.prompt_text)] : null);

  /** Returns the turns whose tokens are in other rows of the session. */
  const otherTurns = (record) => {
    const here = new Set(record.segments.filter((block) => block.kind === "model").map((block) => block.turn));
    const others = record.segments.length ? record.turns.filter((turn) => !here.has(turn.index)) : record.turns;
    if (!others.length) return null;
    const title = record.segments.length ? "Turns whose tokens are in other rows of the session · " + others.length : "Turns · " + others.length;
    return fold(title, others.map((turn) => el("div", { class: "message" }, el("b", {}, "turn " + turn.index), text(turn.text || ""), viewer.calls(turn), (turn.observations || []).map((observation) => text(observation)))));
  };

  const box = (title, content) => (content ? el("section", { class: "box" }, el("h3", {}, title), content) : null);

  viewer.trajectory = {
    show(record) {
      const parts = rewardParts(record);
      viewer.tokens.hideTip();
      viewer.fill(byId("trajectory"),
        head(record.meta), banners(record), facts(record.meta),
        el("div", { class: "boxes" },
          box("Reward", Object.keys(parts).length ? bars(parts) : null),
          box("Time", viewer.timeStrip(record.spans))),
        el("div", { class: "folds" },
          viewer.patch(record.details),
          prompt(record),
          record.final_answer || record.ground_truth ? fold("Answer and truth", el("h4", {}, "Answer"), text(record.final_answer || "(none)"), el("h4", {}, "Ground truth"), text(record.ground_truth || "(none)"), record.env_score ? [el("h4", {}, "The environment's score"), text(record.env_score)] : null, record.extra ? [el("h4", {}, "The row's extra"), text(record.extra)] : null) : null,
          otherTurns(record), about(record)),
        viewer.tokens.controls(record), viewer.tokens.stream(record));
      viewer.tokens.recolour();
    },

    /** Says why there is nothing to show. */
    nothing(why) { viewer.fill(byId("trajectory"), el("p", { class: "nothing" }, why)); },
  };
})();
