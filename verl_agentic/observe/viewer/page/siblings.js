"use strict";
// The siblings of a group, side by side.
(() => {
  const { el, byId, number } = viewer;
  let rows = [];
  let onChoice = () => {};

  const isIt = (row, key) => row.session === key.session && row.index === key.index;

  /** Returns the card of a row; `low` and `high` are the ends of its bar, `key` is the chosen row's. */
  const card = (row, low, high, key) => {
    const fill = el("i", {});
    fill.style.width = (row.reward === null ? 0 : (row.reward - low) / (high - low || 1) * 100) + "%";
    const badges = [
      row.is_void ? viewer.badge("void", "void", row.error) : null,
      row.breach ? viewer.badge("breach", "breach", row.breach) : null,
      row.hacking.length ? viewer.badge("hacking", "breach", row.hacking.join(", ")) : null,
      row.place && row.place !== "last" ? viewer.badge(row.place) : null,
      row.role && row.role !== "policy" ? viewer.badge(row.role) : null,
      row.agent ? viewer.badge(row.agent) : null,
      (row.why || []).map((why) => viewer.badge(why, "why")),
    ];
    const outcome = row.acc === null ? "" : "acc " + number(row.acc);
    return el("button", { class: "card", "aria-current": isIt(row, key) ? "true" : null, "data-session": row.session, "data-index": row.index },
      el("span", { class: "card-top" }, el("span", { class: "session" }, "#" + row.session + (row.index ? "." + row.index : "")), el("b", { class: "reward" }, number(row.reward))),
      el("span", { class: "track", "aria-hidden": "true" }, fill),
      el("span", { class: "facts" }, [outcome, row.mean_advantage === null ? "" : "adv " + number(row.mean_advantage)].filter(Boolean).join(" · ") || "–"),
      el("span", { class: "facts" }, number(row.num_response_tokens) + " tok · " + number(row.num_turns) + (row.num_turns === 1 ? " turn" : " turns")),
      el("span", { class: "facts" }, row.stop_reason || "–", row.num_calls ? " · " + row.num_calls + (row.num_calls === 1 ? " call" : " calls") : ""),
      badges);
  };

  viewer.siblings = {
    card,

    init(choice) {
      onChoice = choice;
      byId("siblings").addEventListener("click", (event) => {
        const hit = event.target.closest(".card");
        if (hit) viewer.siblings.choose(Number(hit.dataset.session), Number(hit.dataset.index));
      });
    },

    show(group, key) {
      byId("siblings").inert = false;
      rows = group;
      const rewards = rows.map((row) => row.reward).filter((reward) => reward !== null);
      const [low, high] = [Math.min(0, ...rewards), Math.max(...rewards, 0)];
      const counted = rows.filter((row) => row.place === "last" && !row.is_void && row.reward !== null).map((row) => row.reward);
      const mean = counted.length ? counted.reduce((sum, value) => sum + value, 0) / counted.length : null;
      const spread = counted.length ? Math.sqrt(counted.reduce((sum, value) => sum + (value - mean) ** 2, 0) / counted.length) : null;
      const sessions = new Set(rows.map((row) => row.session)).size;
      viewer.fill(byId("siblings"),
        el("div", { class: "group-head" }, el("h2", {}, "Group"), el("bdi", { class: "uid" }, rows[0].uid), el("span", { class: "facts" }, sessions + (sessions === 1 ? " trajectory" : " trajectories") + " · mean reward " + number(mean) + " · spread " + number(spread))),
        el("nav", { class: "cards", "aria-label": "Siblings" }, rows.map((row) => card(row, low, high, key))));
    },

    mark(key) {
      for (const element of byId("siblings").querySelectorAll(".card")) {
        if (isIt({ session: Number(element.dataset.session), index: Number(element.dataset.index) }, key)) {
          element.setAttribute("aria-current", "true");
          element.scrollIntoView({ block: "nearest" });
        } else element.removeAttribute("aria-current");
      }
    },

    choose(session, index) {
      const row = rows.find((one) => isIt(one, { session, index }));
      if (row) onChoice(row);
    },

    /** Looks at the sibling to the right, or with -1 to the left. */
    move(by) {
      const place = rows.findIndex((row) => isIt(row, viewer.state.key()));
      const next = rows[place + by];
      if (next) onChoice(next);
    },

    /** Another group is on its way: nobody means the old one's siblings any more. */
    leave() {
      byId("siblings").inert = true;
      rows = [];
    },

    clear() {
      byId("siblings").inert = false;
      rows = [];
      byId("siblings").replaceChildren();
    },
  };
})();
