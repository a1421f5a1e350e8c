"use strict";
// Connects the parts: shows the selection and loads new data.
(() => {
  const { byId, el, state, source } = viewer;
  const TABS = ["trajectories", "curves", "time", "findings", "compare"];
  const POLL_MS = 4000;
  let wanted = 0;

  viewer.openTab = (name) => {
    const open = TABS.includes(name) && !byId("tab-" + name).hidden ? name : TABS[0];
    state.set({ tab: open === TABS[0] ? null : open });
    for (const tab of TABS) {
      const button = byId("tab-" + tab);
      button.setAttribute("aria-selected", tab === open);
      button.tabIndex = tab === open ? 0 : -1;
      byId("panel-" + tab).hidden = tab !== open;
    }
    viewer.tokens.hideTip();
    return open === "compare" ? viewer.compare.draw() : viewer.curves.draw();
  };

  const initTabs = () => {
    for (const tab of TABS) byId("tab-" + tab).addEventListener("click", () => viewer.openTab(tab));
    byId("tab-trajectories").parentElement.addEventListener("keydown", (event) => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!by) return;
      const shown = TABS.filter((tab) => !byId("tab-" + tab).hidden);
      const place = shown.findIndex((tab) => byId("tab-" + tab).getAttribute("aria-selected") === "true");
      const next = shown[(place + by + shown.length) % shown.length];
      viewer.openTab(next);
      byId("tab-" + next).focus();
    });
  };

  /** Shows a trajectory; its group's siblings first, unless they are there. */
  const show = async (key, { isSameGroup = false } = {}) => {
    wanted += 1;
    const mine = wanted;
    state.set({ split: key.split, step: key.step, uid: key.uid, session: key.session, index: key.index });
    try {
      if (isSameGroup) viewer.siblings.mark(key);
      else {
        viewer.siblings.leave();
        const rows = await source.group(key);
        if (mine !== wanted) return;
        viewer.siblings.show(rows, key);
      }
      const record = await source.trajectory(key);
      if (mine !== wanted) return;
      viewer.trajectory.show(record);
      if (!isSameGroup) byId("detail").scrollTop = 0;
    } catch (error) {
      if (mine !== wanted) return;
      if (!isSameGroup) viewer.siblings.clear();
      viewer.trajectory.nothing(error.message);
    }
  };

  const showGroup = (group) => show({ ...group, session: group.first[0], index: group.first[1] });

  /** Lists the groups that pass the filters; the open group stays open, else the first one opens. */
  const relist = async ({ keepsPlace = false } = {}) => {
    try {
      const key = state.key();
      const place = await viewer.list.load(key, { keepsPlace });
      if (place === null) return;
      if (state.key().uid !== key.uid) return await relist({ keepsPlace }); // chosen in the old list meanwhile
      if (state.key().uid === undefined && viewer.list.total()) await viewer.list.choose(0);
      else if (!viewer.list.total() && state.key().uid === undefined) viewer.trajectory.nothing("No trajectories here yet.");
    } catch (error) {
      viewer.say(error.message);
    }
  };

  /** Shows the run's result in one line, and its curve. */
  const showResult = ({ result, trajectories, groups, findings }) => {
    const { name, points } = result;
    const [first, last] = [points[0], points[points.length - 1]];
    const parts = points.length > 1
      ? ["Mean " + name + " " + viewer.number(first[1]) + " in step " + first[0] + ", " + viewer.number(last[1]) + " in step " + last[0]]
      : points.length ? ["Mean " + name + " " + viewer.number(last[1])] : [];
    parts.push(viewer.number(trajectories) + " trajectories in " + viewer.number(groups) + " groups");
    if (findings.length) parts.push(findings.length + (findings.length > 1 ? " findings" : " finding"));
    byId("result").textContent = parts.join(" · ");
    // Of one step there is no curve: a level line shows its number between 0 and 1.
    const drawn = points.length === 1 ? [last, [last[0] + 1, last[1]]] : points;
    viewer.fill(byId("result-picture"), viewer.plots.spark(drawn, "Mean " + name + " of the episodes of each step"));
  };

  const takeUp = (about) => {
    showResult(about);
    const name = viewer.runs.length > 1 ? viewer.runs[state.get("run") || 0] : about.name;
    byId("run-name").textContent = viewer.visible(name);
    byId("run-name").title = viewer.visible(about.folder);
    document.title = viewer.visible(name) + " · verl-agentic";
    viewer.list.setRange(...about.reward_range);
  };

  viewer.refresh = async () => {
    const before = viewer.rows;
    const about = await source.run(true);
    viewer.rows = about.trajectories;
    byId("news").hidden = true;
    takeUp(about);
    viewer.filters.update(about);
    viewer.curves.update(about);
    viewer.compare.forget();
    await relist({ keepsPlace: true });
    viewer.openTab(state.get("tab"));
    viewer.say(about.trajectories === before ? "Nothing new" : viewer.number(about.trajectories - before) + " new");
  };

  const poll = async () => {
    try {
      if (!document.hidden && await source.news()) {
        if (byId("follow").checked) await viewer.refresh();
        else byId("news").hidden = false;
      }
    } catch {
      viewer.say("The server does not answer");
    }
    setTimeout(poll, POLL_MS);
  };

  const onNewAddress = async () => {
    if ((state.get("run") || 0) !== Number(byId("run").value)) return location.reload();
    viewer.openTab(state.get("tab"));
    viewer.filters.update(viewer.about);
    await relist();
    return state.key().uid === undefined ? null : show(state.key());
  };

  /** Offers the choice between several runs. */
  const initRuns = () => {
    const several = viewer.runs.length > 1;
    byId("run-name").hidden = several;
    byId("run-line").hidden = byId("tab-compare").hidden = !several;
    viewer.fill(byId("run"), viewer.runs.map((name, place) => el("option", { value: place }, name)));
    byId("run").value = state.get("run") || 0;
    byId("run").addEventListener("change", () => viewer.openRun(Number(byId("run").value), {}));
  };

  /** Opens the page of a run, at a trajectory of it if a key is given; filters and metrics stay. */
  viewer.openRun = (run, { split, step, uid, session, index }) => {
    state.set({ run: run || null, split, step, uid, session, index });
    location.reload();
  };

  const start = async () => {
    viewer.initTheme();
    viewer.initKeys();
    initTabs();
    viewer.runs = await source.runs();
    initRuns();
    const about = await source.run(false);
    viewer.about = about;
    viewer.rows = about.trajectories;
    takeUp(about);
    viewer.filters.init(about, () => relist());
    viewer.curves.init(about, (step) => { viewer.openTab("trajectories"); viewer.filters.showStep(step); });
    viewer.siblings.init((row) => show(row, { isSameGroup: true }));
    viewer.list.init(showGroup, () => viewer.refresh());
    viewer.openTab(state.get("tab"));
    state.onChange(onNewAddress);
    byId("refresh").addEventListener("click", () => viewer.refresh());
    byId("news").addEventListener("click", () => viewer.refresh());
    const linked = state.key();
    if (linked.uid !== undefined) show({ ...linked, session: linked.session || 0, index: linked.index || 0 });
    await relist();
    if (source.isLive) setTimeout(poll, POLL_MS);
    else byId("refresh").parentElement.hidden = true;
    document.documentElement.dataset.ready = "true";
  };

  start().catch((error) => viewer.say(error.message));
})();
