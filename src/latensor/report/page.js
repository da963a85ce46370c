"use strict";
(() => {
  const root = document.documentElement;
  const byId = (id) => document.getElementById(id);
  const all = (query, from = document) => [...from.querySelectorAll(query)];
  root.classList.add("scripted");
  for (const node of all(".script-only, .copy")) node.hidden = false;

  const list = document.querySelector(".cards");
  const cards = all(".card", list);
  const cardOf = new Map(cards.map((card) => [card.dataset.topic, card]));
  const maps = all("svg.map");
  const spots = all(".spot");
  const names = all(".name");
  const plain = (text) => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();

  // Finding topics by word, and sorting them.
  const find = byId("find");
  const status = byId("list-status");
  const lines = cards.flatMap((card) =>
    all(".words li", card).map((row) => ({ card, row, text: plain(row.firstChild.textContent) })));
  const titleOf = new Map(cards.map((card) => [card, plain(card.querySelector("h3 bdi").textContent)]));

  // Of many topics the first stand on the page until all are asked for, or a link leads to one.
  const more = byId("show-all");
  let first = more && !fromAddress() ? +list.dataset.first : Infinity;
  let kept = new Set(cards);

  function filter() {
    const wanted = find ? plain(find.value.trim()) : "";
    kept = new Set(cards.filter((card) => !wanted || titleOf.get(card).includes(wanted)));
    for (const { card, row, text } of lines) {
      const found = wanted !== "" && text.includes(wanted);
      row.classList.toggle("found", found);
      if (found && !row.parentNode.matches(".ranked")) kept.add(card);
    }
    cards.forEach((card, i) => {
      card.hidden = !kept.has(card);
      card.classList.toggle("later", wanted === "" && i >= first);
    });
    if (more) more.hidden = first === Infinity || wanted !== "";
    for (const mark of [...spots, ...names]) {
      mark.classList.toggle("dimmed", !kept.has(cardOf.get(mark.dataset.topic)));
    }
    byId("nothing-found").hidden = kept.size > 0;
    status.textContent = wanted ? `${kept.size} of ${cards.length} topics have “${find.value.trim()}”.` : "";
  }

  function sort() {
    const choice = document.querySelector("input[name=sort]:checked");
    if (!choice) return;
    cards.sort((a, b) => a.dataset[choice.value] - b.dataset[choice.value]);
    list.append(...cards);
    filter();
    status.textContent = `Sorted by ${choice.labels[0].textContent}.`;
  }

  function whole() {
    first = Infinity;
    filter();
  }

  find?.addEventListener("input", filter);
  more?.addEventListener("click", () => {
    const next = cards[first].querySelector("h3 a");
    whole();
    next.focus();
  });
  for (const choice of all("input[name=sort]")) choice.addEventListener("change", sort);

  // Relevance: the weight of a word's frequency in the topic against its lift ranks words anew.
  const relevance = byId("relevance");

  function rank(lists) {
    const weight = +relevance.value;
    for (const words of lists) {
      const score = ({ dataset: { p, lift } }) => weight * Math.log(p) + (1 - weight) * Math.log(lift);
      const rows = all("li", words).sort((a, b) => score(b) - score(a) || b.dataset.p - a.dataset.p);
      rows.forEach((row, i) => { row.hidden = i >= +relevance.dataset.words; });
      words.append(...rows);
    }
  }

  function say(weight, ranked) {
    const what = weight === 1 ? "by frequency" : weight === 0 ? "by lift" : "frequency and lift";
    byId("relevance-value").textContent = `${weight}: ${what}`;
    relevance.setAttribute("aria-valuetext", `${weight}, ${what}`);
    root.classList.toggle("by-relevance", ranked);
  }

  relevance?.addEventListener("input", () => {
    rank(all(".words.ranked"));
    say(+relevance.value, true);
  });
  for (const choice of all("input[name=words]")) {
    choice.addEventListener("change", () => {
      if (!relevance) return;
      relevance.value = choice.value === "typical" ? 0.6 : 1;
      say(+relevance.value, false);
    });
  }

  // Selecting a topic: the address says which, so that links and the back button work.
  const panel = byId("selected-content");
  let selected = null;

  function fromAddress() {
    const match = /^#topic-(\d+)$/.exec(location.hash);
    return match && cardOf.has(match[1]) ? match[1] : null;
  }

  function show(event) {
    const named = fromAddress();
    const topic = named ?? largest();
    if (event?.type === "hashchange" && named && !cardOf.get(named).offsetParent) {
      find.value = "";
      whole();
      cardOf.get(named).scrollIntoView();
    }
    for (const card of cards) card.classList.toggle("selected", card.dataset.topic === named);
    for (const mark of [...spots, ...names]) {
      const on = mark.dataset.topic === topic;
      mark.classList.toggle("selected", on);
      if (mark.matches(".spot")) {
        if (on) mark.setAttribute("aria-current", "true");
        else mark.removeAttribute("aria-current");
      }
    }
    rove(topic);
    if (!panel || topic === selected) return;
    const first = selected === null;
    selected = topic;
    const card = cardOf.get(topic);
    const copy = card.cloneNode(true);
    for (const node of all("[id]", copy)) node.removeAttribute("id");
    panel.replaceChildren(...copy.childNodes);
    if (!first) byId("selected-status").textContent = `${card.querySelector("h3").textContent} selected`;
  }

  function largest() {
    return cards.reduce((a, b) => (+a.dataset.fraction < +b.dataset.fraction ? a : b)).dataset.topic;
  }

  function select(topic) {
    if (location.hash !== `#topic-${topic}`) history.pushState(null, "", `#topic-${topic}`);
    show();
  }

  addEventListener("hashchange", show);
  addEventListener("popstate", show);

  // On the map, selecting fills the panel beside it and does not leave for the card.
  for (const spot of spots) {
    spot.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      select(spot.dataset.topic);
    });
  }
  panel?.addEventListener("click", (event) => {
    const link = event.target.closest(".near a");
    if (!link) return;
    event.preventDefault();
    select(link.hash.slice("#topic-".length));
    panel.querySelector("h3 a").focus({ preventScroll: true });
  });
  function turn(step) {
    const shown = cards.filter((card) => kept.has(card));
    if (!shown.length) return;
    const at = shown.findIndex((card) => card.dataset.topic === selected);
    const next = at < 0 ? 0 : (at + step + shown.length) % shown.length;
    select(shown[next].dataset.topic);
  }
  byId("previous")?.addEventListener("click", () => turn(-1));
  byId("next")?.addEventListener("click", () => turn(1));

  // One stop for the tabulator key on the map; arrows go to the nearest circle that way.
  function rove(topic) {
    for (const spot of spots) spot.setAttribute("tabindex", spot.dataset.topic === topic ? 0 : -1);
  }
  const ways = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  const middle = (spot) => {
    const circle = spot.querySelector("circle");
    return [+circle.getAttribute("cx"), +circle.getAttribute("cy")];
  };
  for (const map of maps) {
    map.addEventListener("keydown", (event) => {
      const way = ways[event.key];
      const from = event.target.closest(".spot");
      if (!way || !from) return;
      event.preventDefault();
      const [x, y] = middle(from);
      let best = null;
      let least = Infinity;
      for (const spot of all(".spot", map)) {
        if (spot === from) continue;
        const [dx, dy] = [middle(spot)[0] - x, middle(spot)[1] - y];
        const along = dx * way[0] + dy * way[1];
        const across = Math.abs(dx * way[1]) + Math.abs(dy * way[0]);
        if (along > 0 && along + 2 * across < least) [best, least] = [spot, along + 2 * across];
      }
      if (best) { rove(best.dataset.topic); best.focus(); }
    });

    // Circles whose name found no room show it while pointed at.
    const tip = document.createElementNS("http://www.w3.org/2000/svg", "text");
    tip.setAttribute("class", "tip");
    tip.setAttribute("aria-hidden", "true");
    map.append(tip);
    const width = map.viewBox.baseVal.width;
    const point = (event) => {
      const spot = event.target.closest(".spot");
      tip.textContent = "";
      if (!spot || map.querySelector(`.name[data-topic="${spot.dataset.topic}"]`)) return;
      const circle = spot.querySelector("circle");
      tip.textContent = cardOf.get(spot.dataset.topic).querySelector("h3 bdi").textContent;
      const half = tip.getComputedTextLength() / 2 + 4;
      const [x, y] = middle(spot);
      tip.setAttribute("x", Math.min(Math.max(x, half), width - half));
      const above = y - circle.getAttribute("r") - 8;
      tip.setAttribute("y", above < map.viewBox.baseVal.y + 14 ? y + +circle.getAttribute("r") + 16 : above);
    };
    map.addEventListener("pointerover", point);
    map.addEventListener("focusin", point);
    map.addEventListener("pointerleave", () => { tip.textContent = ""; });
    map.addEventListener("focusout", () => { tip.textContent = ""; });
  }

  for (const button of all(".copy")) {
    if (!navigator.clipboard) { button.hidden = true; continue; }
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(byId(button.dataset.copy).textContent);
        button.textContent = "Copied";
      } catch {
        button.textContent = "Not allowed here";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
  }

  // A printed page cannot be opened: everything stands open while printing.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = all(".cards details:not([open])");
    for (const node of opened) node.open = true;
  });
  addEventListener("afterprint", () => { for (const node of opened) node.open = false; });

  if (more) filter();
  show();
})();
