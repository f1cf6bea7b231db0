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

async function look() {
  const known = new URLSearchParams();
  for (const one of document.querySelectorAll("[data-version]")) known.set(one.id, one.dataset.version);
  try {
    const answer = await fetch(`changes?${known}`, { signal: AbortSignal.timeout(10000) });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    const message = await answer.json();
    const news = Object.entries(message.sections);
    for (const [id, part] of news) replace(id, part);
    if (news.length) announce(message.headline);
    say("live", "live");
  } catch {
    say("not live: connecting again", "lost");
  }
  setTimeout(look, document.hidden ? 10000 : 1000);
}

look();
