"use strict";
// Curves and stacked bars over steps, as SVG.
(() => {
  const { el, svg, number } = viewer;
  const PAD = { left: 58, right: 14, top: 16, bottom: 26 };
  const LEVELS = { log: "●", warn: "▲", rollback: "◀", stop: "■" };
  const NUM_COLOURS = 8;
  const cursors = new Set();

  /** Returns three to six round numbers that span an interval. */
  const ticks = (low, high) => {
    const rough = (high - low) / 4 || 1;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((one) => one >= rough);
    const found = [];
    for (let tick = Math.ceil(low / step - 1e-9) * step; tick <= high + step * 1e-9; tick += step) found.push(Math.abs(tick) < step * 1e-9 ? 0 : tick);
    return found;
  };

  const frame = (width, height, [low, high], steps, inset = 0) => {
    const [first, last] = [steps[0], steps[steps.length - 1]];
    const room = width - PAD.left - PAD.right - 2 * inset;
    const x = (step) => PAD.left + inset + room * (last === first ? 0.5 : (step - first) / (last - first));
    const y = (value) => height - PAD.bottom - (height - PAD.top - PAD.bottom) * ((value - low) / (high - low || 1));
    const across = ticks(first, last).filter((step) => Number.isInteger(step));
    const lines = [
      ticks(low, high).map((tick) => [
        svg("line", { class: "grid", x1: PAD.left, x2: width - PAD.right, y1: y(tick), y2: y(tick) }),
        svg("text", { class: "tick", x: PAD.left - 6, y: y(tick) + 4, "text-anchor": "end" }, number(tick))]),
      (across.length ? across : [first]).map((step) => svg("text", { class: "tick", x: x(step), y: height - 8, "text-anchor": "middle" }, number(step))),
    ].flat(2);
    return { x, y, lines };
  };

  /** Returns the pieces of a curve, broken where a step has no number. */
  const pieces = (steps, values) => {
    const found = [[]];
    values.forEach((value, place) => {
      if (value === null || value === undefined) found.push([]);
      else found[found.length - 1].push([steps[place], value]);
    });
    return found.filter((piece) => piece.length);
  };

  const nearest = (steps, wanted) => steps.reduce((best, step, place) => (Math.abs(step - wanted) < Math.abs(steps[best] - wanted) ? place : best), 0);

  const marks = (findings, x, height) => findings.map((finding) => svg("g", { class: "mark " + finding.level },
    svg("line", { x1: x(finding.step), x2: x(finding.step), y1: PAD.top, y2: height - PAD.bottom }),
    svg("text", { x: x(finding.step), y: PAD.top - 3, "text-anchor": "middle" }, LEVELS[finding.level] || "●"),
    svg("title", {}, "step " + finding.step + ": " + finding.name + " – " + finding.message)));

  /** Lets a drawing react to the pointer and to arrow keys; `tell` gets the place of the step, -1 for none. */
  const steer = (drawing, { steps, x, width, onStep, tell }) => {
    let place = -1;
    const go = (next) => {
      place = Math.min(steps.length - 1, Math.max(0, next));
      for (const other of cursors) other(steps[place]);
    };
    const fromEvent = (event) => {
      const box = drawing.getBoundingClientRect();
      const wanted = (event.clientX - box.left) * width / box.width;
      return steps.reduce((best, step, index) => (Math.abs(x(step) - wanted) < Math.abs(x(steps[best]) - wanted) ? index : best), 0);
    };
    cursors.add((step) => { place = step === null ? -1 : nearest(steps, step); tell(place); });
    drawing.addEventListener("pointermove", (event) => go(fromEvent(event)));
    drawing.addEventListener("pointerleave", () => { for (const other of cursors) other(null); });
    drawing.addEventListener("click", (event) => { go(fromEvent(event)); onStep(steps[place]); });
    drawing.addEventListener("focus", () => { if (place < 0) go(steps.length - 1); });
    drawing.addEventListener("keydown", (event) => {
      const jumps = { ArrowLeft: place - 1, ArrowRight: place + 1, Home: 0, End: steps.length - 1 };
      if (jumps[event.key] !== undefined) go(jumps[event.key]);
      else if (event.key === "Enter" && place >= 0) onStep(steps[place]);
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
  };

  const isNumber = (value) => value !== null && value !== undefined;

  /** Returns the band between `lows` and `highs`, where both are known. */
  const band = ({ steps, lows, highs }, place, x, y) => {
    const known = steps.map((step, at) => [step, lows[at], highs[at]]).filter((point) => point.every(isNumber));
    const corners = [...known.map(([step, low]) => [step, low]), ...known.map(([step, , high]) => [step, high]).reverse()];
    return svg("polygon", { class: "band k" + place, points: corners.map(([step, value]) => x(step).toFixed(1) + "," + y(value).toFixed(1)).join(" ") });
  };

  /** Returns the curves of a metric over steps. A series is `{label, steps, values}`, and may have `lows` and `highs`. */
  const curve = (name, { series, findings, width, onStep }) => {
    const height = 190;
    const steps = [...new Set(series.flatMap((one) => one.steps))].sort((one, other) => one - other);
    const byStep = series.map((one) => new Map(one.steps.map((step, place) => [step, one.values[place]])));
    const known = series.map((one) => one.values.filter(isNumber));
    const figure = el("figure", { class: "chart", "data-metric": name });
    const readout = el("output", {});
    /** Shows the values of a step, or the last ones. */
    const read = (place) => viewer.fill(readout, place < 0 ? null : "step " + steps[place] + ": ", series.map(({ label }, run) => [
      series.length > 1 ? el("i", { class: "swatch k" + run % NUM_COLOURS }) : null,
      series.length > 1 && place < 0 ? label + " " : null,
      el("span", {}, number(place < 0 ? known[run][known[run].length - 1] : byStep[run].get(steps[place])), " ")]));
    read(-1);
    figure.style.width = width + 26 + "px";
    viewer.put(figure, el("figcaption", {}, el("bdi", { title: name }, name), readout));
    const all = [...known.flat(), ...series.flatMap(({ lows, highs }) => [...(lows || []), ...(highs || [])]).filter(isNumber)];
    if (!all.length) return viewer.put(figure, el("p", { class: "nothing" }, "no step has this number"));
    let [low, high] = [Math.min(...all), Math.max(...all)];
    if (low === high) [low, high] = [low - (Math.abs(low) || 1) * 0.1, high + (Math.abs(high) || 1) * 0.1];
    const { x, y, lines } = frame(width, height, [low, high], steps);
    const dots = series.map((_, run) => svg("circle", { class: "k" + run % NUM_COLOURS, r: 3.5 }));
    const line = svg("line", { y1: PAD.top, y2: height - PAD.bottom });
    const cursor = svg("g", { class: "cursor", visibility: "hidden" }, line, dots);
    const drawn = series.map((one, run) => [
      one.lows ? band(one, run % NUM_COLOURS, x, y) : null,
      pieces(one.steps, one.values).map((piece) => (piece.length === 1
        ? svg("circle", { class: "k" + run % NUM_COLOURS, cx: x(piece[0][0]), cy: y(piece[0][1]), r: 2.5 })
        : svg("polyline", { class: "curve c" + run % NUM_COLOURS, points: piece.map(([step, value]) => x(step).toFixed(1) + "," + y(value).toFixed(1)).join(" ") })))]);
    const shown = findings.filter((finding) => finding.step >= steps[0] && finding.step <= steps[steps.length - 1]);
    const spoken = known.map((values, run) => (series.length > 1 ? series[run].label + " " : "") + "from " + number(values[0]) + " to " + number(values[values.length - 1])).join(", ");
    const drawing = svg("svg", {
      viewBox: "0 0 " + width + " " + height, tabindex: 0, role: "img",
      "aria-label": name + " over " + steps.length + " steps, " + spoken + ", between " + number(low) + " and " + number(high) + "; arrow keys read values, Enter lists the step's trajectories",
    }, lines, marks(shown, x, height), drawn, cursor);
    const tell = (place) => {
      cursor.setAttribute("visibility", place < 0 ? "hidden" : "visible");
      read(place);
      if (place < 0) return;
      for (const end of ["x1", "x2"]) line.setAttribute(end, x(steps[place]));
      dots.forEach((dot, run) => {
        const value = byStep[run].get(steps[place]);
        dot.setAttribute("visibility", isNumber(value) ? "inherit" : "hidden");
        dot.setAttribute("cx", x(steps[place]));
        dot.setAttribute("cy", y(value || 0));
      });
    };
    steer(drawing, { steps, x, width, onStep, tell });
    return viewer.put(figure, drawing);
  };

  /** Returns bars of seconds per step, made of `parts`: `[{title, values, colour}]`, lowest first. */
  const stack = ({ steps, parts, width, onStep }) => {
    const height = 300;
    const sum = (place) => parts.reduce((all, part) => all + Math.max(0, part.values[place] || 0), 0);
    const high = Math.max(...steps.map((_, place) => sum(place)), 1e-9);
    const gap = (width - PAD.left - PAD.right) / Math.max(1, steps[steps.length - 1] - steps[0] + 1);
    const bar = Math.max(0.6, Math.min(40, gap * 0.8));
    const { x, y, lines } = frame(width, height, [0, high], steps, bar / 2 + 2);
    const bars = steps.map((step, place) => {
      let base = 0;
      return parts.map((part) => {
        const value = Math.max(0, part.values[place] || 0);
        const top = y(base + value);
        const made = value > 0 ? svg("rect", { class: part.colour, x: x(step) - bar / 2, width: bar, y: top, height: Math.max(0, y(base) - top) }) : null;
        base += value;
        return made;
      });
    }).flat();
    const cursor = svg("line", { class: "cursor-line", y1: PAD.top, y2: height - PAD.bottom, visibility: "hidden" });
    const readout = el("output", { class: "strip-value" }, "Hover, or focus and use arrow keys, for a step");
    const tell = (place) => {
      cursor.setAttribute("visibility", place < 0 ? "hidden" : "visible");
      if (place < 0) return;
      cursor.setAttribute("x1", x(steps[place]));
      cursor.setAttribute("x2", x(steps[place]));
      const named = parts.filter((part) => part.values[place]).sort((one, other) => other.values[place] - one.values[place]).slice(0, 6);
      viewer.fill(readout, "step " + steps[place] + ": " + viewer.seconds(sum(place)) + " = " + named.map((part) => part.title + " " + viewer.seconds(part.values[place])).join(" + "));
    };
    const drawing = svg("svg", {
      class: "stack", viewBox: "0 0 " + width + " " + height, tabindex: 0, role: "img",
      "aria-label": "Seconds of every step by stage; the table below has the sums; arrow keys read steps",
    }, lines, bars, cursor, svg("text", { class: "tick", x: 4, y: 12 }, "seconds"));
    steer(drawing, { steps, x, width, onStep, tell });
    return el("figure", { class: "chart wide" }, drawing, readout);
  };

  /** Returns a small curve of shares over steps, without axes; null for fewer than two. */
  const spark = (points, label) => {
    if (points.length < 2) return null;
    const [width, height] = [180, 30];
    const [low, high] = [Math.min(0, ...points.map((point) => point[1])), Math.max(1, ...points.map((point) => point[1]))];
    const [first, last] = [points[0][0], points[points.length - 1][0]];
    const line = points.map(([step, value]) => ((step - first) / (last - first) * width).toFixed(1) + "," + (height - 1 - (height - 2) * (value - low) / (high - low)).toFixed(1)).join(" ");
    return svg("svg", { class: "spark", viewBox: "0 0 " + width + " " + height, role: "img", "aria-label": label },
      svg("title", {}, label),
      svg("polygon", { class: "area", points: "0," + height + " " + line + " " + width + "," + height }),
      svg("polyline", { class: "curve", points: line }));
  };

  viewer.plots = { curve, stack, spark, forget: () => cursors.clear() };
})();
