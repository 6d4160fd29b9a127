// The page brings itself up to date: it asks for itself and takes the new main part.
// Without this file the page reloads, see page.go.
"use strict";
const period = 5000;

async function update() {
  if (document.hidden) return;
  const late = document.getElementById("late");
  try {
    const answer = await fetch(location.pathname, { signal: AbortSignal.timeout(4 * period) });
    if (!answer.ok) throw new Error(answer.statusText);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const main = document.querySelector("main");
    const open = new Set(Array.from(main.querySelectorAll("details[open]"), (d) => d.id));
    const fresh = document.importNode(page.querySelector("main"), true);
    for (const d of fresh.querySelectorAll("details")) d.open = open.has(d.id);
    main.replaceWith(fresh);
    document.title = page.title;
    late.hidden = true;
  } catch {
    late.hidden = false;
  }
}

setInterval(update, period);
document.addEventListener("visibilitychange", update);
