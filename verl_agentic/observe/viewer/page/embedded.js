"use strict";
// The data of an exported page, asked as the server is: same filters, same orders.
(() => {
  const holder = viewer.byId("data");
  if (!holder) return;
  const data = JSON.parse(holder.textContent);
  const records = new Map();
  const RANGES = {
    step: "step", reward: "reward", acc: "acc", advantage: "mean_advantage", length: "num_response_tokens",
  };
  const LISTS = { tool: "tools", hacking: "hacking" };
  const has = (text, part) => String(text).toLowerCase().includes(part.toLowerCase());
  const isSame = (one, other) => one.split === other.split && one.step === other.step && one.uid === other.uid;

  const record = (number) => {
    if (!records.has(number)) records.set(number, JSON.parse(viewer.byId("record-" + number).textContent));
    return records.get(number);
  };

  const texts = (value) => {
    if (typeof value === "string") return [value];
    return value && typeof value === "object" ? Object.values(value).flatMap(texts) : [];
  };
  const says = (row, text) => {
    const { prompt, turns, final_answer, meta } = record(row.record);
    return texts([prompt, turns, final_answer, meta.error]).some((part) => has(part, text));
  };

  const list = (value) => (Array.isArray(value) ? value : value ? [value] : []);
  const passes = (row, query) => {
    const among = (name, column) => !list(query[name]).length || list(query[name]).includes(row[column]);
    if (!among("split", "split") || !among("stop", "stop_reason") || !among("env", "env")) return false;
    for (const [name, column] of Object.entries(LISTS)) {
      if (list(query[name]).length && !list(query[name]).some((value) => row[column].includes(value))) return false;
    }
    for (const [name, column] of Object.entries(RANGES)) {
      const value = row[column];
      for (const [bound, isOut] of [["_min", (limit) => !(value >= limit)], ["_max", (limit) => !(value <= limit)]]) {
        const limit = query[name + bound];
        if (limit !== undefined && limit !== "" && (value === null || isOut(Number(limit)))) return false;
      }
    }
    if (query.void && row.is_void !== (query.void === "yes")) return false;
    if (query.breach && (row.breach !== "") !== (query.breach === "yes")) return false;
    if (query.task && ![row.task_id, row.data_source, row.uid].some((text) => has(text, query.task))) return false;
    return !query.text || says(row, query.text.trim());
  };

  const ordered = (lines, query) => {
    const name = query.sort || "step";
    const sign = query.order === "asc" ? 1 : -1;
    return lines.slice().sort((one, other) => {
      const [a, b] = [one.line[name], other.line[name]];
      if (a === b) return one.number - other.number;
      if (a === null || b === null) return a === null ? 1 : -1;
      return sign * (a - b) || one.number - other.number;
    });
  };

  viewer.source = {
    isLive: false,
    runs: async () => [data.about.name],
    run: async () => data.about,
    news: async () => false,
    groups: async (query, page) => {
      const found = data.groups.map((group, number) => {
        const rows = group.rows.filter((row) => passes(row, query));
        const first = rows.length ? [rows[0].session, rows[0].index] : null;
        return { number, line: { ...group.line, matching: rows.length, first } };
      });
      const lines = ordered(found.filter((group) => group.line.matching), query).map((group) => group.line);
      const around = { split: page.around_split, step: page.around_step, uid: page.around_uid };
      const place = page.around_uid === undefined ? -1 : lines.findIndex((line) => isSame(line, around));
      return {
        revision: data.about.revision,
        total: lines.length,
        trajectories: lines.reduce((sum, line) => sum + line.matching, 0),
        offset: page.offset,
        groups: lines.slice(page.offset, page.offset + page.limit),
        place: place < 0 ? null : place,
      };
    },
    group: async (key) => {
      const group = data.groups.find((one) => isSame(one.line, key));
      if (!group) throw new Error("this page does not hold that group");
      return group.rows;
    },
    trajectory: async (key) => {
      const group = data.groups.find((one) => isSame(one.line, key));
      const row = group && group.rows.find((one) => one.session === key.session && one.index === key.index);
      if (!row) throw new Error("this page does not hold that trajectory");
      return record(row.record);
    },
    metrics: async (names) => ({
      steps: data.metrics.steps,
      values: Object.fromEntries(names.map((name) => [name, data.metrics.values[name] || []])),
    }),
  };
})();
