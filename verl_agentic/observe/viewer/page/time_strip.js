"use strict";
// Where an episode's time went: a bar per span, one below the other where they overlap.
(() => {
  const { el, svg, seconds } = viewer;
  const HEIGHT = 18;
  const WIDTH = 1000;
  const KINDS = ["generate", "tool", "step", "start", "score", "close", "retry_wait", "encode"];

  /** Returns for every span the first lane that is free when it begins; longer ones come first. */
  const lanes = (spans) => {
    const ends = [];
    return spans.map((span) => {
      let lane = ends.findIndex((end) => end <= span.start_s + 1e-9);
      if (lane < 0) lane = ends.length;
      ends[lane] = span.end_s;
      return lane;
    });
  };

  const colourOf = (kind) => "k" + ((KINDS.indexOf(kind) + 1 || KINDS.length) - 1) % 8;

  /** Returns the strip, with the sums by kind; null where the log has no spans. */
  viewer.timeStrip = (all) => {
    const spans = all.filter((span) => span.start_s !== null && span.end_s !== null)
      .sort((one, other) => one.start_s - other.start_s || other.end_s - one.end_s);
    if (!spans.length) return null;
    const end = Math.max(...spans.map((span) => span.end_s)) || 1;
    const lane = lanes(spans);
    const depth = Math.max(...lane) + 1;
    const value = el("output", { class: "strip-value" }, "Hover or Tab for a span; " + seconds(end) + " in all");
    const tell = (span) => viewer.fill(value, span.kind + (span.label ? " " + span.label : "") + " · turn " + span.turn + " · " + seconds(span.end_s - span.start_s) + ", from " + seconds(span.start_s) + " on");
    const bar = (span, index) => {
      const width = Math.max(1.5, (span.end_s - span.start_s) / end * WIDTH);
      const title = span.kind + (span.label ? " " + span.label : "") + ", turn " + span.turn + ", " + seconds(span.end_s - span.start_s);
      return svg("rect", {
        x: Math.min(span.start_s / end * WIDTH, WIDTH - 1.5), y: lane[index] * HEIGHT, width, height: HEIGHT - 2, class: colourOf(span.kind), tabindex: index ? -1 : 0,
        role: "img", "aria-label": title, "data-span": index, on: { pointerenter: () => tell(span), focus: () => tell(span) },
      });
    };
    const bars = spans.map(bar);
    const strip = svg("svg", {
      class: "strip", viewBox: "0 0 " + WIDTH + " " + depth * HEIGHT, preserveAspectRatio: "none", role: "group",
      "aria-label": "Time of the episode; arrow keys move between spans",
      on: {
        keydown: (event) => {
          const place = bars.indexOf(event.target) + { ArrowRight: 1, ArrowLeft: -1 }[event.key];
          if (!bars[place]) return;
          event.preventDefault();
          event.stopPropagation();
          event.target.setAttribute("tabindex", -1);
          bars[place].setAttribute("tabindex", 0);
          bars[place].focus();
        },
      },
    }, bars);
    strip.style.height = depth * HEIGHT + "px";
    const sums = new Map();
    for (const span of spans) sums.set(span.kind, (sums.get(span.kind) || 0) + span.end_s - span.start_s);
    const key = [...sums].sort((one, other) => other[1] - one[1]).map(([kind, sum]) => el("span", {}, el("i", { class: "swatch " + colourOf(kind) }), kind + " " + seconds(sum)));
    return el("div", { class: "strip-box" }, strip, el("div", { class: "key-line" }, key), value);
  };
})();
