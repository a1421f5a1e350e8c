"use strict";
// Where data come from: the server. A page that was exported brings its own (embedded.js).
(() => {
  const ask = async (name, params) => {
    const query = new URLSearchParams();
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
    run: (refresh) => ask("run", refresh ? { refresh: 1 } : {}),
    news: async () => (await ask("news")).news,
    groups: (query, page) => ask("groups", { ...query, ...page }),
    group: (key) => ask("group", { split: key.split, step: key.step, uid: key.uid }),
    trajectory: (key) => ask("trajectory", {
      split: key.split, step: key.step, uid: key.uid, session: key.session, index: key.index,
    }),
    metrics: (names) => ask("metrics", { name: names }),
  };
})();
