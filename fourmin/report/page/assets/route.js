// The address after # says what is shown: a result, the rules or one of them, or the overview.
const views = [...document.querySelectorAll("[data-view]")];
const headline = document.title;

function show(name) {
  for (const view of views) view.hidden = view.id !== name;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

function goTo(hash, focus) {
  const name = decodeURIComponent(hash.slice(1));
  const result = Object.hasOwn(DATA.results, name) ? DATA.results[name] : null;
  tip.hidden = true;
  if (result && DATA.pages) {
    location.replace(addressOf(name));
    return;
  }
  if (result) {
    const section = document.getElementById("result");
    if (section.dataset.result !== name) {
      section.dataset.result = name;
      show("result");
      section.replaceChildren(...buildSection(result));
    }
    show("result");
    document.title = `${result.title}: time to train`;
    scrollTo(0, 0);
    if (focus) section.querySelector("h1").focus({ preventScroll: true });
    return;
  }
  const [, ...two] = /^compare-(result-\w+)-(result-\w+)$/.exec(name) ?? [];
  if (two.length && two.every((one) => Object.hasOwn(DATA.results, one))) {
    const section = document.getElementById("comparison");
    show("comparison");
    section.replaceChildren(...buildComparison(...two));
    document.title = section.querySelector("h1").textContent;
    scrollTo(0, 0);
    if (focus) section.querySelector("h1").focus({ preventScroll: true });
    return;
  }
  document.title = headline;
  const rule = name.startsWith("rule-") ? document.getElementById(name) : null;
  if (rule || name === "rules") {
    show("rules");
    if (rule) {
      rule.open = true;
      rule.scrollIntoView();
      rule.querySelector("summary").focus({ preventScroll: true });
    } else if (focus) {
      scrollTo(0, 0);
      document.querySelector("#rules h1").focus({ preventScroll: true });
    }
    return;
  }
  if (name === "content") {
    document.getElementById("content").focus();
    return;
  }
  const opened = document.getElementById("result").dataset.result;
  show("overview");
  const target = name && name !== "overview" ? document.getElementById(name) : null;
  const row = focus && opened ? document.querySelector(`tr[data-result="${opened}"]`) : null;
  if (target) target.scrollIntoView();
  else if (row && !row.hidden) row.querySelector("a").focus();
  else if (focus) document.querySelector("#overview h1").focus({ preventScroll: true });
}

addEventListener("hashchange", () => goTo(location.hash, true));
addEventListener("beforeprint", () => [...waiting.keys()].forEach(actNow));
makeTickable();
filter();
goTo(location.hash, false);
