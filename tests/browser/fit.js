// Every text of the page that is too small, outside of the window, or on another label of a chart, and
// how many were looked at. What lies in a box that scrolls may be outside of the window.
(() => {
  const misfits = [];
  const name = (element) => `${element.tagName}.${element.className}: ${element.textContent.slice(0, 60)}`;
  const shown = (element) => element.getClientRects().length > 0 && !element.closest(".unseen");
  let count = 0;
  for (const element of document.querySelectorAll("main *")) {
    const words = [...element.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!words || element.closest("svg") || !shown(element)) continue;
    count += 1;
    const box = element.getBoundingClientRect();
    const size = parseFloat(getComputedStyle(element).fontSize);
    if (size < 12) misfits.push(`${size}px: ${name(element)}`);
    const scrolls = element.closest(".scroll");
    if (!scrolls && (box.left < 0 || box.right > innerWidth)) misfits.push(`outside: ${name(element)}`);
  }
  for (const labels of document.querySelectorAll(".x:not(.chooser), .y, figcaption, .lane")) {
    const boxes = [...labels.children].filter((e) => e.tagName !== "svg" && shown(e));
    boxes.forEach((one, at) => {
      const a = one.getBoundingClientRect();
      for (const other of boxes.slice(at + 1)) {
        const b = other.getBoundingClientRect();
        const apart = a.right + 4 <= b.left || b.right + 4 <= a.left || a.bottom <= b.top || b.bottom <= a.top;
        if (!apart) misfits.push(`${name(one)} is on ${name(other)}`);
      }
      if (one.scrollWidth > one.clientWidth + 1 && one.clientWidth) misfits.push(`cut: ${name(one)}`);
    });
  }
  return [misfits, count];
})();
