// The page brings itself up to date: it asks for itself and takes the new main part.
// What is typed into the filter becomes part of its address, and podnas filters.
// Without this file the page reloads, see page.go, and the filter is sent by its button.
"use strict";
const period = 5000;
const typing = 300;
let asked = 0;

async function update() {
  if (document.hidden) return;
  const number = ++asked;
  const late = document.getElementById("late");
  try {
    const answer = await fetch(location.pathname + location.search, { signal: AbortSignal.timeout(4 * period) });
    if (!answer.ok && answer.status !== 404) throw new Error(answer.statusText);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (number !== asked) return; // a later answer is on its way
    const main = document.querySelector("main");
    const open = new Set(Array.from(main.querySelectorAll("details[open]"), (d) => d.id));
    const fresh = document.importNode(page.querySelector("main"), true);
    for (const d of fresh.querySelectorAll("details")) d.open = open.has(d.id);
    const before = document.getElementById("filter");
    const focused = before && before === document.activeElement;
    main.replaceWith(fresh);
    const after = document.getElementById("filter");
    if (before && after) {
      after.value = before.value; // it may have been typed on
      if (focused) {
        after.focus({ preventScroll: true });
        after.setSelectionRange(before.selectionStart, before.selectionEnd);
      }
    }
    document.title = page.title;
    late.hidden = true;
  } catch {
    if (number === asked) late.hidden = false;
  }
}

function filter(field) {
  const address = new URL(location.href);
  address.searchParams.delete("filter");
  if (field.value.trim()) address.searchParams.set("filter", field.value.trim());
  history.replaceState(null, "", address);
  update();
}

let waiting;
document.addEventListener("input", (event) => {
  if (event.target.id !== "filter") return;
  clearTimeout(waiting);
  waiting = setTimeout(() => filter(document.getElementById("filter")), typing);
});
document.addEventListener("submit", (event) => {
  event.preventDefault();
  clearTimeout(waiting);
  filter(document.getElementById("filter"));
});
setInterval(update, period);
document.addEventListener("visibilitychange", update);
