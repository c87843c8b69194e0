"use strict";
// Points at an interval of the charts: with a mouse, a finger, or the keys of the slider.
(() => {
  const page = JSON.parse(document.getElementById("intervals").textContent);
  const charts = document.getElementById("charts");
  const chooser = document.getElementById("chooser");
  const detail = document.getElementById("detail");
  if (!charts) return;
  const pictures = [...charts.querySelectorAll("svg")];
  const rows = [...document.querySelectorAll("tr[data-at]")];
  chooser.closest("label").hidden = false;

  const put = (parent, name, text) => {
    const made = parent.appendChild(document.createElement(name));
    if (text !== undefined) made.textContent = text; // never as markup
    return made;
  };

  const ranges = (names, found, more, title) => {
    const part = put(detail, "div");
    put(part, "h4", title);
    const list = put(part, "ul");
    for (const [place, first, last] of found) {
      put(list, "li", `${names[place]}: ${first} to ${last}`);
    }
    if (more > 0) put(list, "li", `${more} more partitions are not shown here`);
  };

  const show = (slot) => {
    for (const picture of pictures) {
      const cursor = picture.querySelector(".cursor");
      cursor.setAttribute("x", slot);
      cursor.setAttribute("visibility", "visible");
    }
    chooser.value = slot;
    const when = `${page.slots[slot]} to ${page.slots[slot + 1]} UTC`;
    chooser.setAttribute("aria-valuetext", when);
    detail.hidden = false;
    detail.replaceChildren();
    put(detail, "h3", when);
    const lag = page.lag[Math.floor(slot / page.lag_each)];
    if (lag) put(detail, "p", `lag at the end: ${lag}`);
    const found = page.found[slot];
    if (!found) {
      put(detail, "p", "No attempt.");
      return;
    }
    const [words, sources, targets, notable] = found;
    for (const word of words) put(detail, "p", word);
    if (sources.length) ranges(page.sources, sources, page.left[0], "Read");
    if (targets.length) ranges(page.targets, targets, page.left[1], "Written");
    if (notable > 0) filter(slot, notable);
  };

  const filter = (slot, notable) => {
    const here = rows.filter((row) => Number(row.dataset.at) === slot);
    const button = put(detail, "button", `Show the ${here.length} of ${notable} listed below`);
    button.type = "button";
    button.addEventListener("click", () => {
      for (const row of rows) row.hidden = Number(row.dataset.at) !== slot;
      const list = document.getElementById("notable");
      let all = document.getElementById("all");
      if (!all) {
        all = document.createElement("button");
        all.id = "all";
        all.type = "button";
        all.textContent = "Show all again";
        list.before(all);
        all.addEventListener("click", () => {
          for (const row of rows) row.hidden = false;
          all.remove();
        });
      }
      list.scrollIntoView({ block: "start" });
      all.focus();
    });
  };

  const slotAt = (picture, x) => {
    const box = picture.getBoundingClientRect();
    const count = page.slots.length - 1;
    return Math.min(count - 1, Math.max(0, Math.floor(((x - box.left) / box.width) * count)));
  };

  // A click holds an interval, so that moving the pointer to its details changes nothing.
  let held = -1;
  for (const picture of pictures) {
    picture.addEventListener("pointermove", (event) => {
      if (held < 0) show(slotAt(picture, event.clientX));
    });
    picture.addEventListener("click", (event) => {
      const slot = slotAt(picture, event.clientX);
      held = held === slot ? -1 : slot;
      show(slot);
    });
  }
  chooser.addEventListener("input", () => {
    held = Number(chooser.value);
    show(held);
  });
})();
