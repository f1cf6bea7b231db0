// Replaces the sections that have changed, and keeps what the reader has opened, and the focus.
"use strict";
const live = document.getElementById("live");
const news = document.getElementById("news");
const ANNOUNCE = 10000; // milliseconds between two sentences to screen readers
let pending = "";
let timer = 0;

function say(text, state) {
  if (live.textContent !== text) live.textContent = text;
  live.dataset.state = state;
}

function announce(text) {
  pending = text;
  if (timer) return;
  timer = setTimeout(() => {
    timer = 0;
    if (news.textContent !== pending) news.textContent = pending;
  }, ANNOUNCE);
}

function replace(id, part) {
  const section = document.getElementById(id);
  if (!section || section.dataset.version === part.version) return;
  const open = new Set(Array.from(section.querySelectorAll("details[open]"), (one) => one.id));
  const focused = section.contains(document.activeElement) ? document.activeElement.id : "";
  section.innerHTML = part.html;
  section.dataset.version = part.version;
  for (const one of section.querySelectorAll("details")) one.open = open.has(one.id);
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
}

const source = new EventSource("stream");
source.addEventListener("open", () => say("live", "live"));
source.addEventListener("error", () => {
  const ended = source.readyState === EventSource.CLOSED;
  say(ended ? "not live: reload the page" : "not live: connecting again", "lost");
});
source.addEventListener("sections", (event) => {
  const message = JSON.parse(event.data);
  for (const [id, part] of Object.entries(message.sections)) replace(id, part);
  announce(message.headline);
});
