// The section of one result, built when it is opened.
const CHARTS = {
  accuracy: ["Accuracy against time", "A line is a run, a point an evaluation, dashed the quality target. Evaluations with more than three times the target's error are in the numbers alone."],
  timeline: ["Timeline", "What each run spent its time on, the clock without a gap; 0 is run_start."],
  exposed: [
    "Exposed communication",
    "The part of a step that compute does not hide. The dot is a run's median step, the line goes to its 95th percentile.",
  ],
};

function chartWithTable(name, columns, index) {
  const [heading, text] = CHARTS[name.split(" ")[0]];
  const caption = make("figcaption", { id: `caption-own-${index}` }, text);
  // A picture of its own around the canvas, on which Vega puts roles of its own.
  const canvas = make("div", { class: "canvas" });
  const picture = make("div", { role: "img", "aria-label": heading, "aria-describedby": `caption-own-${index}` }, canvas);
  const table = make("details", { class: "numbers" }, make("summary", {}, "The numbers of this chart"));
  const rows = rowsOf(columns);
  table.addEventListener("toggle", () => {
    if (!table.open || table.childElementCount > 1) return;
    const names = Object.keys(columns).filter((column) => !["kind", "order", "label"].includes(column));
    const own = rows.filter((row) => row.kind !== "target");
    table.append(makeTable(heading, names, own.map((row) => names.map((column) => String(row[column] ?? "")))));
  });
  const figure = make("figure", { class: "chart" }, caption, picture, table);
  whenNear(figure, () => draw(canvas, DATA.templates[name], rows));
  return [make("h2", {}, heading), figure];
}

function findingRow([severity, code, name, place, message, hint, waived]) {
  return [
    make("span", { class: `severity-${severity}` }, waived ? `${severity}, waived` : severity),
    make("span", {}, make("a", { href: `${HOME}#rule-${code}` }, code), ` ${name}`),
    place,
    make("span", {}, message, make("small", {}, waived ? `Waived: ${waived}` : hint)),
  ];
}

function folded(heading, content) {
  return make("details", { class: "part", open: "" }, make("summary", {}, make("h2", {}, heading)), content);
}

function buildSection(result) {
  const parts = [
    make("p", { class: "back" }, make("a", { href: `${HOME}#overview` }, "All results")),
    make("h1", { tabindex: "-1" }, result.title),
    make("p", { class: "lead" }, result.table),
    make("dl", { class: "key" }, ...result.key.map(([name, text, more]) => make("div", {}, make("dt", {}, name), make("dd", {}, text, more ? make("small", {}, more) : null)))),
    makeFields(result.facts),
    make("h2", {}, "Runs"),
    makeTable("Runs", DATA.runs, result.runs),
  ];
  Object.entries(result.charts).forEach(([name, columns], index) => parts.push(...chartWithTable(name, columns, index)));
  parts.push(make("h2", {}, "Findings"));
  parts.push(
    result.findings.length
      ? makeTable("Findings", ["severity", "rule", "where", "what was found"], result.findings.map(findingRow), "findings")
      : make("p", {}, "The checks found nothing."),
  );
  parts.push(make("h2", {}, "Evidence"));
  const commands = result.evidence.map(([name, says, command]) => [name, says, make("code", {}, command)]);
  parts.push(makeTable("Evidence", ["evidence", "says", "verified by"], commands, "pair both"));
  for (const [heading, pairs] of result.settings) parts.push(folded(heading, makeFields(pairs)));
  if (result.ledger.length) {
    parts.push(folded("Ledger", makeTable("Ledger", ["index", "time (UTC)", "kind", "data", "SHA-256 of the line"], result.ledger, "ledger")));
  }
  return parts;
}
