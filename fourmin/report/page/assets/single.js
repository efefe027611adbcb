// The page of one result.
document.getElementById("result").replaceChildren(...Object.values(DATA.results).flatMap(buildSection));
addEventListener("beforeprint", () => [...waiting.keys()].forEach(actNow));
