"use strict";
// DOM helpers. Untrusted text enters the page here, as plain text with visible control characters.
const viewer = {};

(() => {
  const CONTROLS = ("NUL SOH STX ETX EOT ENQ ACK BEL BS HT LF VT FF CR SO SI DLE DC1 DC2 DC3 DC4 NAK SYN ETB CAN EM SUB ESC "
    + "FS GS RS US").split(" ");
  const NAMES = {
    0x007f: "DEL", 0x00ad: "SHY", 0x061c: "ALM", 0x200b: "ZWSP", 0x200e: "LRM", 0x200f: "RLM", 0x202a: "LRE", 0x202b: "RLE",
    0x202c: "PDF", 0x202d: "LRO", 0x202e: "RLO", 0x2060: "WJ", 0x2066: "LRI", 0x2067: "RLI", 0x2068: "FSI",
    0x2069: "PDI", 0xfeff: "BOM",
  };
  // Controls, marks that turn the direction of text, and characters without width or with the look of others.
  const HIDDEN = new RegExp(
    "[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u00ad\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180e\\u200b\\u200e\\u200f" +
    "\\u2028-\\u202e\\u2060-\\u206f\\u3164\\ufeff\\uffa0\\ufff9-\\ufffb\\u{e0000}-\\u{e0fff}]|\\p{Cs}", "gu");

  /** Returns the text with hidden characters as ⟦names⟧; line breaks and tabs stay. */
  viewer.visible = (text) => String(text).replace(HIDDEN, (character) => {
    const code = character.codePointAt(0);
    return "⟦" + (CONTROLS[code] || NAMES[code] || "U+" + code.toString(16).toUpperCase().padStart(4, "0")) + "⟧";
  });

  /** Returns an element. `on` of the attributes maps events to listeners; null and false leave out others than aria's. */
  const make = (create) => (tag, attributes, ...children) => {
    const element = create(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name.startsWith("aria-") && typeof value === "boolean") element.setAttribute(name, String(value));
      else if (name === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
      else if (value !== null && value !== undefined && value !== false) {
        element.setAttribute(name, value === true ? "" : viewer.visible(value));
      }
    }
    viewer.put(element, ...children);
    return element;
  };
  viewer.el = make((tag) => document.createElement(tag));
  viewer.svg = make((tag) => document.createElementNS("http://www.w3.org/2000/svg", tag));

  /** Appends elements, and texts as text. */
  viewer.put = (element, ...children) => {
    for (const child of children.flat(Infinity)) {
      if (child === null || child === undefined || child === false) continue;
      element.append(child instanceof Node ? child : document.createTextNode(viewer.visible(child)));
    }
    return element;
  };

  /** Puts other children in place of those that an element has. */
  viewer.fill = (element, ...children) => {
    element.replaceChildren();
    return viewer.put(element, ...children);
  };

  viewer.byId = (id) => document.getElementById(id);

  /** Returns a number for people: four digits, groups of thousands. */
  viewer.number = (value) => {
    if (value === null || value === undefined) return "–";
    if (typeof value !== "number") return String(value);
    if (value === 0) return "0";
    const size = Math.abs(value);
    if (size >= 1000) return Math.round(value).toLocaleString("en-US");
    if (size < 0.001) return value.toExponential(2);
    return String(Number(value.toPrecision(4)));
  };

  /** Returns a length of time for people. */
  viewer.seconds = (value) => {
    if (value === null || value === undefined) return "–";
    if (value >= 120) return Math.floor(value / 60) + " min " + Math.round(value % 60) + " s";
    if (value >= 0.9995) return viewer.number(Number(value.toPrecision(3))) + " s";
    return viewer.number(Number((value * 1000).toPrecision(3))) + " ms";
  };

  viewer.say = (text) => { viewer.byId("status").textContent = viewer.visible(text); };

  /** Returns a function that runs `act` once its calls pause. */
  viewer.calm = (act, pause_ms) => {
    let timer = 0;
    return (...values) => {
      clearTimeout(timer);
      timer = setTimeout(() => act(...values), pause_ms);
    };
  };

  viewer.badge = (text, kind, title) => viewer.el("span", { class: "badge " + (kind || ""), title }, text);
})();
