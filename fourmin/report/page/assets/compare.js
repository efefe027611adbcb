// Two results that were ticked, compared as `fourmin report --compare` does, in its words.
const NAMES = ["A", "B"];
const AREAS = { Configuration: "hyperparameters", Software: "software", Hardware: "hardware", Environment: "environment" };
let ticked = [];

// The logarithm of the gamma function: Lanczos' approximation with g = 7 and nine terms.
function logGamma(x) {
  const terms = [676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059, 12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7];
  const sum = terms.reduce((total, term, index) => total + term / (x + index), 0.99999999999980993);
  const base = x + 6.5;
  return (x - 0.5) * Math.log(base) - base + Math.log(Math.sqrt(2 * Math.PI) * sum);
}

// The regularised incomplete beta function, by its continued fraction (DLMF 8.17.22).
function incompleteBeta(a, b, x) {
  if (x <= 0 || x >= 1) return x <= 0 ? 0 : 1;
  if (x > (a + 1) / (a + b + 2)) return 1 - incompleteBeta(b, a, 1 - x);
  let c = 1;
  let d = 1 / (1 - ((a + b) * x) / (a + 1));
  let fraction = d;
  for (let m = 1; m < 1000; m++) {
    const even = (m * (b - m) * x) / ((a + 2 * m - 1) * (a + 2 * m));
    const odd = (-(a + m) * (a + b + m) * x) / ((a + 2 * m) * (a + 2 * m + 1));
    for (const numerator of [even, odd]) {
      d = 1 / (1 + numerator * d);
      c = 1 + numerator / c;
      fraction *= c * d;
    }
    if (Math.abs(c * d - 1) < 1e-15) break;
  }
  return (Math.exp(logGamma(a + b) - logGamma(a) - logGamma(b) + a * Math.log(x) + b * Math.log1p(-x)) * fraction) / a;
}

// The probability that Student's t is further from 0 than `t` (Abramowitz and Stegun 26.7.1).
function bothTails(t, degrees) {
  return incompleteBeta(degrees / 2, 0.5, degrees / (degrees + t * t));
}

// The t that is exceeded, on either side, with this probability; by bisection.
function criticalT(probability, degrees) {
  let [low, high] = [0, 1];
  while (bothTails(high, degrees) > probability) high *= 2;
  for (let step = 0; step < 100; step++) {
    const middle = (low + high) / 2;
    if (bothTails(middle, degrees) > probability) low = middle;
    else high = middle;
  }
  return high;
}

function fill(text, values) {
  return text.replace(/\{(\w+)\}/g, (_, name) => values[name]);
}

const percent = (share) => `${(100 * share).toFixed(1)}%`;
const duration = (minutes) => (Math.abs(minutes) < 1 ? `${(minutes * 60).toFixed(2)} s` : `${minutes.toFixed(3)} min`);

function byHowMuch(a, b) {
  if (!a || !b) return DATA.words["no time"];
  if (a === b) return fill(DATA.words.both, { a: duration(a) });
  const [faster, share] = b > a ? ["A", 1 - a / b] : ["B", 1 - b / a];
  return fill(DATA.words.less, { a: duration(a), b: duration(b), faster, by: duration(Math.abs(a - b)), share: percent(share) });
}

// Welch's test of the logarithms of all runs' times.
function whatTheTestSays(left, right) {
  if (!left || !right) return DATA.words["not-enough-runs"];
  const [a, b] = [left, right].map((logs) => {
    const mean = logs.reduce((sum, log) => sum + log, 0) / logs.length;
    const square = logs.reduce((sum, log) => sum + (log - mean) ** 2, 0);
    return { mean, degrees: logs.length - 1, variance: square / (logs.length - 1) / logs.length };
  });
  const total = a.variance + b.variance;
  if (total === 0) return DATA.words["spread-below-resolution"];
  const error = Math.sqrt(total);
  const degrees = total ** 2 / (a.variance ** 2 / a.degrees + b.variance ** 2 / b.degrees);
  const shift = b.mean - a.mean;
  const p = bothTails(shift / error, degrees);
  const half = criticalT(0.05, degrees) * error;
  return fill(DATA.words.test, {
    says: DATA.words[p < 0.05 ? (shift > 0 ? "a-faster" : "b-faster") : "no-difference-shown"],
    t: (-shift / error).toFixed(2),
    degrees: degrees.toFixed(1),
    p: p >= 0.001 ? p.toFixed(3) : "below 0.001",
    ratio: Math.exp(shift).toFixed(3),
    low: Math.exp(shift - half).toFixed(3),
    high: Math.exp(shift + half).toFixed(3),
    found: percent(Math.expm1(half + criticalT(0.2, degrees) * error)),
  });
}

function unlike(texts, left, right) {
  return texts.map((text, what) => (left[what] === right[what] ? "" : fill(text, { a: left[what], b: right[what] }))).filter(Boolean);
}

// The settings of both, by area. Other sources have other names, but for those of MLPerf's logs.
function settingsOf(a, b) {
  const areas = [a, b].map(({ pair, settings }) => {
    const told = new Map(settings);
    return a.pair.source === b.pair.source ? told : told.set("Configuration", pair.logged ?? told.get("Configuration"));
  });
  return Object.keys(AREAS).map((area) => [area, ...areas.map((told) => new Map(told.get(area)))]);
}

// What is not the same, where both sides tell; an environment may be empty.
function differences(settings) {
  const compared = settings.filter(([area, ours, theirs]) => area === "Environment" || (ours.size && theirs.size));
  return compared.flatMap(([area, ours, theirs]) =>
    [...new Set([...ours.keys(), ...theirs.keys()])].sort()
      .map((name) => [AREAS[area], name, ours.get(name) ?? "-", theirs.get(name) ?? "-"])
      .filter(([, , one, other]) => one !== other),
  );
}

function untold(settings) {
  return settings.filter(([area]) => area !== "Environment").flatMap(([area, ...told]) =>
    NAMES.filter((_, side) => !told[side].size && told[1 - side].size).map((side) => fill(DATA.words.untold, { side, area: AREAS[area] })),
  );
}

function buildComparison(...anchors) {
  const results = anchors.map((anchor) => DATA.results[anchor]);
  const [a, b] = results.map((result) => result.pair);
  const settings = settingsOf(...results);
  const obstacles = [
    ...unlike(DATA.obstacles, a.same, b.same),
    ...[a, b].flatMap((one, side) => (one.apart ? [`${NAMES[side]} ${one.apart}`] : [])),
  ];
  const notes = [
    ...[a, b].flatMap((one, side) => one.notes.map((note) => `${NAMES[side]} ${note}`)),
    ...unlike(DATA.notes, a.differ, b.differ),
    ...untold(settings),
  ];
  const facts = results.map((result) => new Map([...result.key.map(([name, text, more]) => [name, more ? `${text} (${more})` : text]), ...result.facts]));
  const names = [...new Set(facts.flatMap((one) => [...one.keys()]))];
  const changed = differences(settings);
  const list = (texts) => make("ul", {}, ...texts.map((text) => make("li", {}, text)));
  const figure = [...figures.values()].find(({ name, rows }) => name.startsWith("times-") && anchors.every((anchor) => rows[anchor]));
  const canvas = make("div", { class: "canvas" });
  if (figure) whenNear(canvas, () => draw(canvas, figure.spec, anchors.flatMap((anchor, order) => rowsOf(figure.rows[anchor]).map((row) => ({ ...row, order })))));
  return [
    make("p", { class: "back" }, make("a", { href: "#overview" }, "All results")),
    make("h1", { tabindex: "-1" }, "Do they differ?"),
    ...results.map((result, side) => make("p", { class: "lead" }, make("b", {}, `${NAMES[side]}  `), make("a", { href: addressOf(anchors[side]) }, result.title))),
    ...(obstacles.length ? [make("p", {}, "not comparable:"), list(obstacles)] : [make("p", {}, byHowMuch(a.minutes, b.minutes)), make("p", {}, whatTheTestSays(a.logs, b.logs))]),
    ...(notes.length ? [make("h2", {}, "To know beside it"), list(notes)] : []),
    ...(figure ? [make("h2", {}, "Times"), make("div", { role: "img", "aria-label": "Times of both" }, canvas)] : []),
    make("h2", {}, "Both"),
    makeTable("Both", ["", ...NAMES], names.map((name) => [name, ...facts.map((one) => one.get(name) ?? "-")]), "pair both"),
    make("h2", {}, "What differs"),
    changed.length
      ? makeTable("What differs", ["area", "name", ...NAMES], changed, "pair")
      : make("p", {}, "No difference in hyperparameters, software or hardware is known."),
  ];
}

// Each result of the tables can be ticked: the last two are compared.
function makeTickable() {
  for (const row of allRows) {
    const link = row.cells[0].querySelector("a");
    const box = make("input", { type: "checkbox", "aria-label": `Compare ${link.textContent}` });
    box.addEventListener("change", () => {
      const others = ticked.filter((one) => one !== row.dataset.result);
      tick(box.checked ? [...others.slice(-1), row.dataset.result] : others);
    });
    link.after(box);
  }
}

function tick(results) {
  ticked = results;
  for (const row of allRows) row.cells[0].querySelector("input").checked = ticked.includes(row.dataset.result);
  const bar = document.getElementById("ticked");
  const clear = make("button", { type: "button" }, "Untick");
  clear.addEventListener("click", () => tick([]));
  bar.hidden = !ticked.length;
  bar.replaceChildren(
    ticked.map((result, side) => `${NAMES[side]}: ${DATA.results[result].title}`).join(" \u00b7 "),
    " ",
    ticked.length === 2 ? make("a", { href: `#compare-${ticked.join("-")}` }, "Compare them") : "Tick another one to compare.",
    " ",
    clear,
  );
}
