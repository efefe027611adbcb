// Charts are Vega-Lite specifications, evaluated without eval, as the page's policy demands.
const tip = make("div", { class: "tip", hidden: "" });
document.body.append(tip);

function showTip(handler, event, item, value) {
  if (value === null || value === undefined || value === "") {
    tip.hidden = true;
    return;
  }
  const lines = Object.entries(value).filter(([, text]) => text !== "" && text !== "null" && text !== "undefined" && text !== "NaN");
  tip.replaceChildren(...lines.map(([name, text]) => make("div", {}, make("b", {}, `${name} `), String(text))));
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 4))}px`;
  tip.style.top = `${Math.max(4, Math.min(event.clientY + 14, innerHeight - box.height - 4))}px`;
}

// Draws `rows` into `canvas`; what was drawn there before is removed. One drawing at a time each.
const drawings = new WeakMap();

function draw(canvas, template, rows) {
  const before = drawings.get(canvas) ?? Promise.resolve();
  const drawing = before.then(async (old) => {
    old?.finalize();
    const spec = { ...structuredClone(template), datasets: { rows } };
    const axis = spec.encoding?.y?.axis;
    // On a narrow screen names must leave room for what is drawn.
    if (axis?.labelLimit) axis.labelLimit = Math.min(axis.labelLimit, canvas.clientWidth * 0.4);
    if (spec.height?.step) {
      // A chart as wide as its element needs a height in pixels.
      const { field } = spec.encoding.y;
      spec.height = spec.height.step * new Set(rows.map((row) => row[field])).size;
    }
    return window.vegaEmbed(canvas, spec, {
      mode: "vega-lite",
      ast: true,
      actions: false,
      defaultStyle: false,
      logLevel: 1, // errors: that a filter left no interval to draw is nothing to warn of
      renderer: "svg",
      tooltip: showTip,
    });
  });
  drawings.set(canvas, drawing);
  return drawing;
}

// Calls `act` once, when an element comes near the screen or is printed.
const waiting = new Map();
const observer = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) if (entry.isIntersecting) actNow(entry.target);
  },
  { rootMargin: "300px" },
);

function actNow(element) {
  const act = waiting.get(element);
  if (!act) return;
  waiting.delete(element);
  observer.unobserve(element);
  act();
}

function whenNear(element, act) {
  waiting.set(element, act);
  observer.unobserve(element);
  observer.observe(element);
}
