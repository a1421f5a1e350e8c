"use strict";
// The token stream: a block per author and turn, every token coloured by one of its numbers.
(() => {
  const { el, byId, number } = viewer;
  // `floor`: minimum end of the scale, so that tiny values look tiny.
  const COLOURS = {
    mask: { title: "Mask", kind: "mask" },
    advantage: { title: "Advantage", kind: "diverging", floor: 1, unit: "" },
    log_prob: { title: "Log-prob", kind: "falling", floor: 2, unit: "nats, of the rollout" },
    gap: { title: "Rollout − trainer", kind: "diverging", floor: 0.1, unit: "nats, log-prob of rollout minus that of the trainer" },
    entropy: { title: "Entropy", kind: "rising", floor: 1, unit: "nats" },
    value: { title: "Value", kind: "diverging", floor: 1, unit: "of the critic" },
  };
  const LEVELS = 5;
  const ROWS = [
    ["log-prob, rollout", "log_prob"], ["log-prob, trainer", "trainer_log_prob"], ["rollout − trainer", "gap"],
    ["entropy", "entropy"], ["advantage", "advantage"], ["value", "value"], ["return", "return"], ["reward", "reward"],
  ];
  let shown = null;
  let current = null;

  const at = (column, index) => (Array.isArray(column) ? column[index] : column);
  const has = (name) => name === "mask" || (shown && shown.tokens.columns[name] !== undefined);

  /** Returns the end of the scale: a round number that 98 of 100 sizes do not pass. */
  const scaleEnd = (column, floor) => {
    const sizes = (Array.isArray(column) ? column : [column]).filter((value) => value !== null).map(Math.abs).sort((a, b) => a - b);
    const size = sizes.length ? sizes[Math.min(sizes.length - 1, Math.floor(sizes.length * 0.98))] : 0;
    if (size <= floor) return floor;
    const power = 10 ** Math.floor(Math.log10(size));
    return [1, 2, 5, 10].map((factor) => factor * power).find((end) => end >= size * 0.999);
  };

  const level = (value, end) => Math.min(LEVELS, Math.ceil(Math.abs(value) / end * LEVELS - 1e-9));

  const classOf = (name, index, end) => {
    const { mask, columns } = shown.tokens;
    if (name === "mask") return mask[index] ? "m1" : "m0";
    const value = at(columns[name], index);
    if (value === null || value === undefined || value === 0) return "";
    if (COLOURS[name].kind === "diverging") return (value < 0 ? "n" : "p") + level(value, end);
    return "s" + level(value, end);
  };

  const colour = (name) => {
    const end = name === "mask" ? 0 : scaleEnd(shown.tokens.columns[name], COLOURS[name].floor);
    for (const token of byId("trajectory").querySelectorAll(".t")) {
      token.className = ("t " + classOf(name, Number(token.dataset.i), end)).trim();
    }
    legend(name, end);
  };

  const legend = (name, end) => {
    const { kind, unit } = COLOURS[name];
    const swatch = (classes) => el("i", { class: "swatch " + classes });
    const scale = (letter) => Array.from({ length: LEVELS }, (_, step) => swatch(letter + (step + 1)));
    const parts = {
      mask: () => [swatch("m1"), el("span", {}, "trained on (mask 1)"), swatch("m0"), el("span", {}, "not trained on (mask 0)")],
      diverging: () => [el("span", {}, number(-end)), scale("n").reverse(), swatch("zero"), scale("p"), el("span", {}, "+" + number(end)), el("span", {}, unit)],
      rising: () => [el("span", {}, "0"), scale("s"), el("span", {}, number(end)), el("span", {}, unit)],
      falling: () => [el("span", {}, "0"), scale("s"), el("span", {}, number(-end)), el("span", {}, unit)],
    };
    viewer.fill(byId("legend"), parts[kind]());
  };

  /** Returns a token: line breaks are drawn and kept; a token without a text (part of a character) is a dot. */
  const token = (index) => {
    const { texts, ids } = shown.tokens;
    const made = el("span", { class: "t", "data-i": index });
    const text = texts ? texts[index] : null;
    if (text === null) return viewer.put(made, el("span", { class: "id" }, ids[index]));
    if (text === "") return viewer.put(made, el("span", { class: "part" }, "·"));
    text.split("\n").forEach((part, line) => viewer.put(made, line ? [el("span", { class: "nl", "aria-hidden": "true" }, "↵"), "\n"] : null, part));
    return made;
  };

  const label = (index) => {
    const { texts, ids, mask, turn_ids: turns, columns } = shown.tokens;
    const name = viewer.state.get("colour") || "mask";
    const text = texts && texts[index] !== null ? JSON.stringify(texts[index]) : "id " + ids[index];
    const value = name === "mask" ? "" : ", " + COLOURS[name].title + " " + number(at(columns[name], index));
    return text + ", token " + index + " of turn " + (turns[index] ?? "–") + ", mask " + mask[index] + value;
  };

  const showTip = (target) => {
    const index = Number(target.dataset.i);
    const { texts, ids, mask, turn_ids: turns, columns } = shown.tokens;
    const chosen = viewer.state.get("colour");
    const row = (title, value, name) => el("tr", { class: name && name === chosen ? "chosen" : null }, el("th", { scope: "row" }, title), el("td", {}, value));
    const chance = at(columns.log_prob, index);
    const tip = byId("tip");
    viewer.fill(tip, el("table", {},
      row("token", (texts && texts[index] !== null ? JSON.stringify(texts[index]) + "  " : "") + "id " + ids[index]),
      row("place", index + " · turn " + (turns[index] ?? "–") + " · mask " + mask[index]),
      ROWS.filter(([, name]) => columns[name] !== undefined).map(([title, name]) => row(title, number(at(columns[name], index)), name)),
      mask[index] && chance !== undefined && chance !== null ? row("probability", number(Math.exp(chance))) : null));
    tip.hidden = false;
    const box = target.getClientRects()[0] || target.getBoundingClientRect();
    tip.style.left = Math.max(8, Math.min(box.left, innerWidth - tip.offsetWidth - 8)) + "px";
    tip.style.top = (box.bottom + tip.offsetHeight + 8 < innerHeight ? box.bottom + 4 : box.top - tip.offsetHeight - 4) + "px";
  };

  const hideTip = () => { byId("tip").hidden = true; };

  const focusToken = (target) => {
    if (!target) return;
    if (current) {
      current.tabIndex = -1;
      current.removeAttribute("role");
    }
    current = target;
    target.tabIndex = 0;
    target.setAttribute("role", "button");
    target.setAttribute("aria-label", viewer.visible(label(Number(target.dataset.i))));
    target.setAttribute("aria-describedby", "tip");
    target.focus();
  };

  const onKey = (event) => {
    const target = event.target.closest(".t");
    if (!target || event.ctrlKey || event.metaKey || event.altKey) return;
    const all = [...byId("trajectory").querySelectorAll(".t")];
    const place = all.indexOf(target);
    const jumps = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: all.length - 1 };
    const block = target.closest(".segment");
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const blocks = [...byId("trajectory").querySelectorAll(".segment")];
      const other = blocks[blocks.indexOf(block) + (event.key === "ArrowDown" ? 1 : -1)];
      jumps[event.key] = other ? all.indexOf(other.querySelector(".t")) : place;
    }
    if (jumps[event.key] === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    focusToken(all[jumps[event.key]]);
  };

  /** Returns the spans of one author; derived from the mask if the loop has none. */
  const blocks = () => {
    const { segments, tokens } = shown;
    if (segments.length) return segments;
    const found = [];
    tokens.mask.forEach((mask, index) => {
      const kind = mask ? "model" : "not trained on";
      const last = found[found.length - 1];
      if (last && last.kind === kind) last.end = index + 1;
      else found.push({ start: index, end: index + 1, kind, turn: null });
    });
    return found;
  };

  /** Returns the text of a block without a tokenizer. */
  const saidBy = (block) => {
    const turn = shown.turns.find((one) => one.index === block.turn);
    if (shown.tokens.texts || !turn) return null;
    if (block.kind === "model") return turn.text;
    return block.kind === "tool" ? (turn.observations || []).join("\n") : null;
  };

  const blockElement = (block) => {
    const count = block.end - block.start;
    const title = block.kind + (block.turn === null ? "" : " · turn " + block.turn);
    const said = saidBy(block);
    const made = el("section", { class: "segment kind-" + block.kind.replace(/ /g, "-"), "aria-label": title });
    const stream = el("div", { class: "stream", dir: "auto" });
    for (let index = block.start; index < block.end; index += 1) stream.append(token(index));
    viewer.put(made, el("div", { class: "author" }, el("b", {}, block.kind), el("span", {}, block.turn === null ? "" : "turn " + block.turn), el("span", {}, number(count) + (count === 1 ? " token" : " tokens"))));
    if (said) viewer.put(made, el("pre", { class: "said", dir: "auto" }, said));
    return viewer.put(made, stream);
  };

  viewer.tokens = {
    COLOURS,

    /** Returns the stream with the calls of every turn where they were made. */
    stream(record) {
      shown = record;
      current = null;
      const all = blocks();
      const lastOf = new Map();
      all.forEach((block, index) => { if (block.kind === "model") lastOf.set(block.turn, index); });
      const stream = el("div", { class: "tokens", role: "group", "aria-label": "Tokens; Tab enters, arrow keys move, values are shown" });
      all.forEach((block, index) => {
        viewer.put(stream, blockElement(block));
        const turn = lastOf.get(block.turn) === index && record.turns.find((one) => one.index === block.turn);
        if (turn) viewer.put(stream, viewer.calls(turn));
      });
      const entry = stream.querySelector(".t");
      if (entry) entry.tabIndex = 0;
      stream.addEventListener("pointerover", (event) => { const hit = event.target.closest(".t"); if (hit) showTip(hit); });
      stream.addEventListener("pointerout", hideTip);
      stream.addEventListener("focusin", (event) => { const hit = event.target.closest(".t"); if (hit) { if (hit !== current) focusToken(hit); showTip(hit); } });
      stream.addEventListener("focusout", hideTip);
      stream.addEventListener("click", (event) => { const hit = event.target.closest(".t"); if (hit && !String(getSelection())) focusToken(hit); });
      stream.addEventListener("keydown", onKey);
      return stream;
    },

    /** Returns the switch of colourings, and the legend. */
    controls(record) {
      shown = record;
      const made = el("div", { class: "colours", role: "radiogroup", "aria-label": "Colour tokens by" });
      Object.entries(COLOURS).forEach(([name, { title }], place) => viewer.put(made, el("label", { class: "chip", title: has(name) ? "key " + (place + 1) : "not in this record" },
        el("input", { type: "radio", name: "colour", value: name, disabled: !has(name), on: { change: () => viewer.tokens.colour(name) } }),
        el("span", {}, title))));
      return el("div", { class: "colour-line" }, made, el("div", { id: "legend", role: "img", "aria-label": "Legend of colours" }));
    },

    /** Colours by a column that the record has, else by the mask; remembers the wish. */
    colour(name) {
      if (!shown) return;
      if (!has(name)) return viewer.say(COLOURS[name].title + " is not in this record");
      viewer.state.set({ colour: name === "mask" ? null : name });
      viewer.tokens.recolour();
    },

    recolour() {
      const wish = viewer.state.get("colour");
      const name = wish && COLOURS[wish] && has(wish) ? wish : "mask";
      for (const input of byId("trajectory").querySelectorAll("input[name=colour]")) input.checked = input.value === name;
      colour(name);
    },

    hideTip,
  };
})();
