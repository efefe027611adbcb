// Elements are made with text, never with markup: nothing of a submission is parsed as HTML.
const DATA = JSON.parse(document.getElementById("data").textContent);

// Where the overview with its rules is, and where a result's section is: here, or pages beside this.
const HOME = document.body.dataset.home ?? "";
const addressOf = (anchor) => (DATA.pages ? `${DATA.pages}${anchor}.html` : `#${anchor}`);

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== ""));
  return element;
}

const NUMBER = /^(-|[-\d.,e]+(%| (s|min|J))?)$/;

// A table: `names` of columns, `cells` as lists of texts or elements; numbers stand to the right.
function makeTable(caption, names, cells, style = "") {
  // A column that says nothing in any row is left out.
  const told = names.map((_, column) => column).filter((column) => cells.some((row) => row[column] !== "-"));
  const columns = told.map((column) => names[column]);
  const rows = cells.map((row) => told.map((column) => row[column]));
  const kinds = columns.map((_, column) => (rows.every((cells) => NUMBER.test(cells[column])) ? "number" : "text"));
  return make(
    "div",
    { class: "scroll", role: "region", "aria-label": caption, tabindex: "0" },
    asCards(make(
      "table",
      { class: style },
      make("caption", { class: "hidden" }, caption),
      make("thead", {}, make("tr", {}, ...columns.map((name, column) => make("th", { scope: "col", class: kinds[column] }, name)))),
      make("tbody", {}, ...rows.map((cells) => make("tr", {}, ...cells.map((cell, column) => make("td", { class: kinds[column] }, cell))))),
    )),
  );
}

// On a narrow screen a row is a card, in which each cell says its column: see page.css.
function asCards(table) {
  const names = [...table.tHead.rows[0].cells].map((head) => head.textContent.trim());
  for (const row of table.tBodies[0].rows) names.forEach((name, column) => (row.cells[column].dataset.name = name));
  table.classList.add("cards");
  return table;
}

// A long name may be broken after its underscores and dots.
function breakable(name) {
  return name.split(/(?<=[_.])/).flatMap((part, index) => (index ? [make("wbr"), part] : [part]));
}

// Names and values, in two columns where there is room.
function makeFields(pairs) {
  const fields = pairs.map(([name, value]) => make("div", {}, make("dt", {}, ...breakable(name)), make("dd", {}, value)));
  return make("dl", { class: "facts" }, ...fields);
}

// From one list a column, or each text once and its places, to one object a row.
function rowsOf(told) {
  const names = Object.keys(told);
  const whole = (column) => (Array.isArray(column) ? column : column.at.map((place) => column.of[place]));
  const columns = Object.fromEntries(names.map((name) => [name, whole(told[name])]));
  const length = names.length ? columns[names[0]].length : 0;
  return Array.from({ length }, (_, index) =>
    Object.fromEntries(
      names.map((name) => [name, columns[name][index]]).filter(([, value]) => value !== null),
    ),
  );
}
