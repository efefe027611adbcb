// Sorting and filtering of the overview's tables; the charts follow them.
const form = document.getElementById("filter");
const groups = [...document.querySelectorAll("#overview .group")].filter((group) => group.querySelector("tbody"));
const allRows = groups.flatMap((group) => [...group.querySelectorAll("tbody tr")]);
const words = new Map(allRows.map((row) => [row, row.textContent.toLowerCase()]));
const charts = [...document.querySelectorAll("#overview .chart")];
const shown = new Set();
// Pixels: the least that a panel of a chart takes, its axis and the gap beside it, the chart's margin.
const PANEL = 300;
const AXIS = 82;
const MARGIN = 8;
const figures = new Map(DATA.figures.map((figure) => [figure.name, { ...figure, all: false }]));

function wanted(row, values) {
  const { facets } = DATA.results[row.dataset.result];
  const text = (values.get("text") ?? "").trim().toLowerCase();
  const least = values.get("least");
  const most = values.get("most");
  return (
    text.split(/\s+/).every((word) => words.get(row).includes(word)) &&
    DATA.choices.every((name) => !values.get(name) || facets[name].includes(values.get(name))) &&
    (!least || (row.dataset.chips && Number(row.dataset.chips) >= Number(least))) &&
    (!most || (row.dataset.chips && Number(row.dataset.chips) <= Number(most))) &&
    (!values.get("status") || values.get("status").split(" ").includes(row.dataset.status))
  );
}

function filter() {
  shown.clear();
  const values = new FormData(form);
  for (const row of allRows) {
    row.hidden = !wanted(row, values);
    if (!row.hidden) shown.add(row.dataset.result);
  }
  for (const group of groups) {
    group.hidden = group.querySelector("tbody tr:not([hidden])") === null;
    const link = document.querySelector(`.contents a[href="#${group.id}"]`);
    if (!link) continue;
    link.parentElement.hidden = group.hidden;
    link.nextElementSibling.textContent = group.querySelectorAll("tbody tr:not([hidden])").length;
  }
  document.getElementById("nothing").hidden = shown.size > 0 || !allRows.length;
  const whole = new Set(allRows.map((row) => row.dataset.result)).size;
  form.querySelector("output").textContent =
    (shown.size === whole ? "" : `${shown.size} of `) + (whole === 1 ? "1 result" : `${whole} results`);
  drawFigures();
  remember();
}

// The filter and how tables are sorted are kept in the address, which can be passed on.
function remember() {
  const state = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
  for (const group of groups) {
    const head = group.querySelector("th[data-chosen]");
    if (head) state.set(`sort-${group.id}`, `${head.dataset.chosen} ${head.getAttribute("aria-sort")}`);
  }
  const query = state.size ? `?${state}` : "";
  if (query !== location.search) history.replaceState(null, "", `${location.pathname}${query}${location.hash}`);
}

function recall() {
  const state = new URLSearchParams(location.search);
  for (const [name, value] of state) {
    const field = form.elements.namedItem(name);
    if (field) field.value = value;
  }
  for (const group of groups) {
    const [, name, way] = /^(.+) (ascending|descending)$/.exec(state.get(`sort-${group.id}`) ?? "") ?? [];
    const heads = [...group.querySelectorAll("thead th")];
    const head = heads.find((one) => one.querySelector("button").textContent === name);
    if (head) sortTable(group.querySelector("table"), heads, head, way);
  }
}

// Every row that is shown, in its order, numbers in full precision, as RFC 4180 asks.
function csv() {
  const lines = [];
  const names = new Set(["table", "result", "system", "submitter"]);
  for (const group of groups.filter((one) => !one.hidden)) {
    for (const row of group.querySelectorAll("tbody tr:not([hidden])")) {
      const [system, submitter] = ["a", "small"].map((name) => row.cells[0].querySelector(name));
      const line = { table: group.querySelector("h2").textContent, result: row.dataset.result, system: system.textContent, submitter: submitter.textContent };
      for (const cell of [...row.cells].slice(1)) {
        const text = cell.firstChild.textContent;
        // The numbers of times are minutes, whatever unit they are shown in.
        const name = cell.dataset.name === "time to train" ? "minutes to train" : cell.dataset.name;
        line[name] = /^\d/.test(text) && cell.dataset.sort ? cell.dataset.sort : text;
        names.add(name);
      }
      lines.push(line);
    }
  }
  const cell = (text = "-") => {
    if (text === "-") return "";
    // Text that a spreadsheet takes as text.
    const safe = /^[=+\-@\uff1d\uff0b\uff0d\uff20]./.test(text) ? `'${text}` : text;
    return /[",\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const rows = [[...names], ...lines.map((line) => [...names].map((name) => line[name]))];
  return rows.map((row) => `${row.map((text) => cell(text)).join(",")}\r\n`).join("");
}

document.getElementById("csv").addEventListener("click", () => {
  const address = URL.createObjectURL(new Blob([csv()], { type: "text/csv" }));
  make("a", { download: "results.csv", href: address }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
});

function keyOf(row, column, numeric) {
  const key = row.cells[column].dataset.sort;
  if (key === undefined) return null;
  return numeric ? Number(key) : key;
}

// What is missing stays last, whichever way a column is sorted, and the invalid below the others.
function sortBy(table, column, numeric, direction) {
  const body = table.tBodies[0];
  const keyed = [...body.rows].map((row) => [keyOf(row, column, numeric), row]);
  keyed.sort(([a, left], [b, right]) => {
    const levels = left.dataset.level - right.dataset.level;
    if (levels) return levels;
    if (a === null || b === null) return (a === null) - (b === null);
    return direction * (numeric ? a - b : a.localeCompare(b, "en", { numeric: true }));
  });
  body.append(...keyed.map(([, row]) => row));
}

function makeSortable(group) {
  const table = group.querySelector("table");
  const heads = [...table.tHead.rows[0].cells];
  asCards(table).classList.add("sortable");
  heads.forEach((head) => {
    const name = head.textContent.trim();
    const button = make("button", { type: "button" }, name);
    // On paper a text stands in its place: a header with a button is not repeated on each page.
    head.replaceChildren(button, make("span", { class: "paper", "aria-hidden": "true" }, name));
    button.addEventListener("click", () => {
      const [first, second] = "falls" in head.dataset ? ["descending", "ascending"] : ["ascending", "descending"];
      sortTable(table, heads, head, head.getAttribute("aria-sort") === first ? second : first);
      drawFigures();
      remember();
    });
  });
}

function sortTable(table, heads, head, way) {
  for (const other of heads) {
    other.removeAttribute("aria-sort");
    delete other.dataset.chosen;
  }
  head.setAttribute("aria-sort", way);
  head.dataset.chosen = head.querySelector("button").textContent;
  sortBy(table, heads.indexOf(head), head.dataset.kind === "number", way === "ascending" ? 1 : -1);
}

// The addresses of the results that are shown, in the order of the tables.
function shownResults(within) {
  return [...within.querySelectorAll("tbody tr:not([hidden])")].map((row) => row.dataset.result);
}

function drawFigure(element, figure) {
  const group = element.closest(".group");
  const own = group.querySelector("tbody") ? group : document.getElementById("overview");
  const results = shownResults(own).filter((result) => figure.rows[result]);
  const drawn = figure.all ? results : results.slice(0, figure.most);
  const rows = drawn.flatMap((result, order) => rowsOf(figure.rows[result]).map((row) => ({ ...row, order })));
  const canvas = element.querySelector(".canvas");
  const note = element.querySelector(".shown");
  note.replaceChildren();
  if (results.length > figure.most) {
    const about = figure.all
      ? `All ${results.length} are drawn, in the table's order. `
      : `The first ${drawn.length} of ${results.length} are drawn, in the table's order. `;
    const button = make("button", { type: "button" }, figure.all ? `Only ${figure.most}` : `Draw all ${results.length}`);
    button.addEventListener("click", () => {
      figure.all = !figure.all;
      drawFigure(element, figure);
      note.querySelector("button").focus();
    });
    note.append(about, button);
  }
  if (rows.length) draw(canvas, fitted(figure.spec, canvas.clientWidth), rows);
}

// Panels side by side do not take the width of their element by themselves.
function fitted(template, width) {
  if (!template.facet) return template;
  const columns = Math.max(1, Math.floor(width / PANEL));
  const spec = { ...template.spec, width: Math.floor((width - 2 * MARGIN) / columns) - AXIS };
  return { ...template, columns, spec };
}

function drawFigures() {
  for (const element of charts) {
    const figure = figures.get(element.dataset.figure);
    const results = Object.keys(figure.rows);
    const group = element.closest(".group");
    // A table whose rows have no place in its chart stays.
    (group.querySelector("tbody") ? element : group).hidden = !results.some((result) => shown.has(result));
    whenNear(element, () => drawFigure(element, figure));
  }
}

groups.forEach(makeSortable);
form.hidden = false;
recall();
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("input", filter);
form.addEventListener("reset", () => setTimeout(filter));
