// The page brings itself up to date: it asks for itself, and Idiomorph patches what has changed, so that focus, selection,
// scroll positions and open details stay. What is typed into the filter becomes part of the address, and podnas filters.
// Without this file the page reloads, see page.go, and the filter is sent by its button.
"use strict";
const period = 5000; // between an answer and the next request
const patience = 10000; // for an answer: podnas itself gives up after 8 s
const typing = 300;
const reading = 5000; // how long a message is there
const byId = (id) => document.getElementById(id);

let request; // the AbortController of the latest request
let next; // timer

async function update() {
  clearTimeout(next);
  if (document.hidden) return; // until it is visible again
  if (request) request.abort();
  const own = (request = new AbortController());
  const deadline = setTimeout(() => own.abort(), patience);
  try {
    const answer = await fetch(location.pathname + location.search, { signal: own.signal });
    if (!answer.ok && answer.status !== 404) throw new Error(answer.statusText);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (own !== request) return;
    show(page);
    if (byId("late").textContent) say("podnas answers again.");
    byId("late").textContent = "";
  } catch {
    if (own !== request) return; // it was ended for a later one
    const text = `podnas does not answer. What is below is of ${document.querySelector("#page time").textContent}.`;
    if (byId("late").textContent !== text) byId("late").textContent = text;
  } finally {
    clearTimeout(deadline);
    if (own === request) next = setTimeout(update, period);
  }
}

// show patches the page.
function show(page) {
  const fresh = page.getElementById("page");
  if (!fresh) throw new Error("this is not a page of podnas");
  const selected = selection();
  const focused = document.activeElement;
  Idiomorph.morph(byId("page"), fresh, { callbacks: { beforeAttributeUpdated: (name, node) => !isOfThePerson(name, node) } });
  // A browser without moveBefore takes the focus from what moves.
  if (focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
  select(selected);
  document.title = page.title;
}

// isOfThePerson reports whether an attribute is set by who looks at the page: podnas does not know it.
function isOfThePerson(name, node) {
  return (name === "open" && node.localName === "details") || (name === "value" && node.id === "filter");
}

// selection returns the ends of the selected text, or nothing.
function selection() {
  const { anchorNode, anchorOffset, focusNode, focusOffset, isCollapsed } = getSelection();
  return isCollapsed ? null : { anchorNode, anchorOffset, focusNode, focusOffset };
}

// select selects a text again: its ends were lost if they were in text that has changed.
function select(was) {
  if (!was || !was.anchorNode.isConnected || !was.focusNode.isConnected) return;
  const is = getSelection();
  if (Object.keys(was).every((key) => was[key] === is[key])) return;
  const within = (node, offset) => Math.min(offset, node.nodeType === Node.TEXT_NODE ? node.length : node.childNodes.length);
  is.setBaseAndExtent(was.anchorNode, within(was.anchorNode, was.anchorOffset), was.focusNode, within(was.focusNode, was.focusOffset));
}

let silence; // timer

// say shows a message for a while, and has it read out.
function say(text) {
  clearTimeout(silence);
  byId("said").textContent = text;
  silence = setTimeout(() => (byId("said").textContent = ""), reading);
}

// copy copies a command. Only pages of https and of localhost have a clipboard; the others copy what is selected.
async function copy(code) {
  try {
    await navigator.clipboard.writeText(code.textContent);
  } catch {
    const before = selection();
    getSelection().selectAllChildren(code);
    if (!document.execCommand("copy")) {
      say("The browser does not let the page copy. The command is selected: copy it with Ctrl+C.");
      return;
    }
    getSelection().removeAllRanges();
    select(before);
  }
  say("Copied: " + code.textContent);
}

function filter(field) {
  const address = new URL(location.href);
  address.searchParams.delete("filter");
  if (field.value.trim()) address.searchParams.set("filter", field.value.trim());
  history.replaceState(null, "", address);
  update();
}

let waiting; // timer
document.addEventListener("input", (event) => {
  if (event.target.id !== "filter") return;
  clearTimeout(waiting);
  waiting = setTimeout(() => filter(byId("filter")), typing);
});
document.addEventListener("submit", (event) => {
  event.preventDefault();
  clearTimeout(waiting);
  filter(byId("filter"));
});
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copies]");
  if (button) copy(byId(button.dataset.copies));
});
document.addEventListener("visibilitychange", update);
document.documentElement.classList.add("scripts");
next = setTimeout(update, period);
