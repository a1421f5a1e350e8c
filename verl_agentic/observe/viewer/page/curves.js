"use strict";
// The views over steps: chosen metrics, the ledger of time, findings.
(() => {
  const { el, byId, number, seconds } = viewer;
  const FIRST = ["episode/acc", "critic/score/mean", "critic/rewards/mean", "response_length/mean", "batch/entropy", "episode/tool_calls", "actor/ppo_kl", "actor/grad_norm", "rollout_corr/kl", "credit/zero_signal_group_frac"];
  const MOST_AT_FIRST = 6;
  const NUM_COLOURS = 8;
  let about = null;
  let onStep = () => {};
  let drawing = 0;

  const chosen = () => {
    const named = viewer.state.metrics().filter((name) => about.metrics.includes(name));
    if (viewer.state.metrics().length) return named;
    const first = FIRST.filter((name) => about.metrics.includes(name)).slice(0, MOST_AT_FIRST);
    return first.length ? first : about.metrics.slice(0, MOST_AT_FIRST);
  };

  /** Returns the findings on a metric; a finding without a known metric belongs to all. */
  const findingsOf = (metric) => about.findings.filter((finding) => {
    const words = JSON.stringify([finding.evidence, finding.message]);
    const named = about.metrics.filter((name) => words.includes(name));
    return named.length ? named.includes(metric) : true;
  });

  const listNames = () => {
    const part = byId("metric-filter").value.trim().toLowerCase();
    const found = about.metrics.filter((name) => name.toLowerCase().includes(part));
    const now = new Set(chosen());
    viewer.fill(byId("metric-names"), found.map((name) => el("label", { class: "metric" }, el("input", { type: "checkbox", value: name, checked: now.has(name) }), el("bdi", {}, name))));
    byId("metric-count").textContent = found.length + " metrics · " + now.size + " shown";
  };

  const cardWidth = () => {
    const room = byId("charts").clientWidth || 960;
    const across = Math.max(1, Math.floor(room / 440));
    return Math.floor((room - (across - 1) * 16) / across) - 26;
  };

  const drawCurves = async () => {
    const names = chosen();
    drawing += 1;
    const key = drawing;
    viewer.plots.forget();
    // Several runs are drawn together; the metrics to choose from are those of the chosen run.
    const runs = await Promise.all(viewer.runs.map((_, run) => viewer.source.metrics(names, viewer.runs.length > 1 ? run : undefined)));
    if (key !== drawing) return;
    const seriesOf = (name) => runs.map(({ steps, values }, run) => ({ label: viewer.runs[run], steps, values: values[name] }));
    const width = cardWidth();
    const none = about.metrics.length ? "Choose metrics on the left." : "The run has logged no metrics yet.";
    viewer.fill(byId("charts"), names.length ? names.map((name) => viewer.plots.curve(name, { series: seriesOf(name), findings: findingsOf(name), width, onStep })) : el("p", { class: "nothing" }, none));
    viewer.fill(byId("chart-findings"), about.findings.length ? [el("h3", {}, "Findings"), findingList()] : null);
  };

  /** Returns the metrics that a step's time is made of: ours, else verl's timers. */
  const ledger = () => {
    const own = about.metrics.filter((name) => /^time\/[^/]+_s$/.test(name) && !/^time\/(step|total)_s$/.test(name));
    const names = own.length ? own : about.metrics.filter((name) => /^timing_s\/[^/]+$/.test(name) && name !== "timing_s/step");
    return { names, isOurs: own.length > 0, title: (name) => name.replace(/^time\//, "").replace(/^timing_s\//, "").replace(own.length ? /_s$/ : /$^/, "") };
  };

  const drawTime = async () => {
    const { names, isOurs, title } = ledger();
    drawing += 1;
    const key = drawing;
    viewer.plots.forget();
    if (!names.length) return viewer.fill(byId("time"), el("p", { class: "nothing" }, "The run has logged no times yet."));
    const { steps, values } = await viewer.source.metrics(names);
    if (key !== drawing) return null;
    const all = names.map((name) => ({ title: title(name), values: values[name], sum: values[name].reduce((sum, value) => sum + Math.max(0, value || 0), 0) })).filter((part) => part.sum > 0).sort((one, other) => other.sum - one.sum);
    const parts = all.slice(0, NUM_COLOURS - 1).map((part, place) => ({ ...part, colour: "k" + place }));
    const rest = all.slice(NUM_COLOURS - 1);
    if (rest.length) parts.push({ title: "the rest", colour: "k" + (NUM_COLOURS - 1), values: steps.map((_, place) => rest.reduce((sum, part) => sum + Math.max(0, part.values[place] || 0), 0)) });
    const total = all.reduce((sum, part) => sum + part.sum, 0);
    const row = (part, place) => {
      const fill = el("i", { class: "positive" });
      fill.style.width = part.sum / total * 100 + "%";
      return el("tr", {}, el("th", { scope: "row" }, el("i", { class: "swatch k" + Math.min(place, NUM_COLOURS - 1) }), part.title), el("td", {}, seconds(part.sum / steps.length)), el("td", {}, number(Number((part.sum / total * 100).toPrecision(3))) + " %"), el("td", { class: "share" }, el("span", { class: "track", "aria-hidden": "true" }, fill)));
    };
    return viewer.fill(byId("time"), el("h2", {}, "Time of a step by stage"),
      isOurs ? null : el("p", { class: "note" }, "Timers of verl; they may overlap."),
      viewer.plots.stack({ steps, parts, width: Math.max(300, byId("time").clientWidth - 30), onStep }),
      el("table", { class: "ledger" }, el("thead", {}, el("tr", {}, ["where", "mean per step", "share", ""].map((name) => el("th", { scope: "col" }, name)))), el("tbody", {}, all.map(row))));
  };

  const finding = (one) => el("li", { class: "finding " + one.level },
    el("div", {}, viewer.badge(one.level, one.level === "stop" || one.level === "rollback" ? "breach" : one.level === "warn" ? "void" : ""), el("b", {}, one.name), el("button", { class: "link-button", on: { click: () => onStep(one.step) } }, "step " + one.step)),
    el("p", {}, one.message), one.advice ? el("p", { class: "advice" }, "Next: " + one.advice) : null,
    one.evidence && Object.keys(one.evidence).length ? el("details", {}, el("summary", {}, "Evidence"), el("pre", {}, JSON.stringify(one.evidence, null, 2))) : null);

  const findingList = () => el("ol", { class: "findings" }, about.findings.slice().reverse().map(finding));

  const drawFindings = () => viewer.fill(byId("findings"), el("h2", {}, "Findings"), about.findings.length ? findingList() : el("p", { class: "nothing" }, "No alarm has found anything."));

  viewer.curves = {
    init(now, stepChosen) {
      onStep = stepChosen;
      viewer.curves.update(now);
      byId("metric-filter").addEventListener("input", listNames);
      byId("metric-names").addEventListener("change", () => {
        const listed = [...byId("metric-names").querySelectorAll("input")];
        const on = new Set(chosen());
        for (const input of listed) if (input.checked) on.add(input.value); else on.delete(input.value);
        viewer.state.set({ m: on.size ? [...on] : ["-"] });
        byId("metric-count").textContent = listed.length + " metrics · " + on.size + " shown";
        drawCurves();
      });
      byId("metric-clear").addEventListener("click", () => {
        viewer.state.set({ m: ["-"] });
        listNames();
        drawCurves();
      });
      let width = innerWidth;
      window.addEventListener("resize", viewer.calm(() => { if (width !== innerWidth) { width = innerWidth; viewer.curves.draw(); } }, 200));
    },

    update(now) {
      about = now;
      byId("tab-findings").textContent = now.findings.length ? "Findings · " + now.findings.length : "Findings";
    },

    /** Draws the view that is open. */
    draw() {
      const tab = viewer.state.get("tab");
      if (tab === "curves") { listNames(); return drawCurves(); }
      if (tab === "time") return drawTime();
      return tab === "findings" ? drawFindings() : null;
    },
  };
})();
