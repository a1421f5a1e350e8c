"use strict";
// Where data come from: the server. A page that was exported brings its own (embedded.js).
(() => {
  const ask = async (name, params, run = viewer.state.get("run") || 0) => {
    const query = new URLSearchParams(run ? { run } : {});
    for (const [key, value] of Object.entries(params || {})) {
      for (const one of Array.isArray(value) ? value : [value]) if (one !== "" && one !== undefined) query.append(key, one);
    }
    const answer = await fetch("api/" + name + "?" + query);
    const value = await answer.json();
    if (!answer.ok) throw new Error(value.error);
    return value;
  };

  viewer.source = {
    isLive: true,
    runs: () => ask("runs"),
    comparison: () => ask("comparison"),
    /** Returns the rows of the newest training group of a task. */
    episodes: (task, run) => ask("episodes", { task }, run),
    run: (refresh) => ask("run", refresh ? { refresh: 1 } : {}),
    news: async () => (await ask("news")).news,
    groups: (query, page) => ask("groups", { ...query, ...page }),
    group: (key) => ask("group", { split: key.split, step: key.step, uid: key.uid }),
    trajectory: (key, run) => ask("trajectory", {
      split: key.split, step: key.step, uid: key.uid, session: key.session, index: key.index,
    }, run),
    metrics: (names, run) => ask("metrics", { name: names }, run),
  };
})();
