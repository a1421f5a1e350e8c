"use strict";
// The state of the page. The address holds all of it, so that it is a link to the view.
(() => {
  const KEY = ["split", "step", "uid", "session", "index"];
  const WHOLE = new Set(["run", "step", "session", "index"]);
  const MANY = new Set(["f.split", "f.stop", "f.env", "f.tool", "f.hacking", "m"]);
  let params = new URLSearchParams(location.hash.slice(1));
  const listeners = [];

  viewer.state = {
    /** Returns a place of the address: `run`, `tab`, `task`, `colour`, or a part of the trajectory's key. */
    get(name) {
      const text = params.get(name);
      if (text === null) return undefined;
      return WHOLE.has(name) ? Number(text) : text;
    },

    /** Returns the open trajectory; undefined parts if the address has none. */
    key: () => Object.fromEntries(KEY.map((name) => [name, viewer.state.get(name)])),

    /** Changes places without a new entry in the browser's history. */
    set(changes) {
      for (const [name, value] of Object.entries(changes)) {
        params.delete(name);
        for (const one of Array.isArray(value) ? value : [value]) {
          if (one !== undefined && one !== null && one !== "") params.append(name, one);
        }
      }
      history.replaceState(null, "", "#" + params);
    },

    /** Returns the filters and the order, as the source takes them. */
    query() {
      const query = {};
      for (const name of new Set(params.keys())) {
        if (name.startsWith("f.")) query[name.slice(2)] = MANY.has(name) ? params.getAll(name) : params.get(name);
      }
      return query;
    },

    setQuery(query) {
      const old = [...params.keys()].filter((name) => name.startsWith("f."));
      viewer.state.set(Object.fromEntries(old.map((name) => [name, null])));
      viewer.state.set(Object.fromEntries(Object.entries(query).map(([name, value]) => ["f." + name, value])));
    },

    metrics: () => params.getAll("m"),

    /** Returns the address of a trajectory, without filters. */
    link(key) {
      const link = new URLSearchParams(viewer.state.get("run") ? { run: viewer.state.get("run") } : {});
      for (const name of KEY) link.set(name, key[name]);
      return location.href.split("#")[0].split("?")[0] + "#" + link;
    },

    /** Calls a listener when somebody has put another address in. */
    onChange: (listener) => listeners.push(listener),
  };

  window.addEventListener("hashchange", () => {
    params = new URLSearchParams(location.hash.slice(1));
    for (const listener of listeners) listener();
  });

  const remembered = (name, value) => {
    try {
      if (value === undefined) return localStorage.getItem("verl-agentic." + name);
      localStorage.setItem("verl-agentic." + name, value);
    } catch { /* a browser may keep nothing for files */ }
    return null;
  };

  viewer.initTheme = () => {
    const choice = viewer.byId("theme");
    const apply = (theme) => { document.documentElement.dataset.theme = theme; };
    choice.value = remembered("theme") || "auto";
    apply(choice.value);
    choice.addEventListener("change", () => {
      apply(choice.value);
      remembered("theme", choice.value);
    });
  };
})();
