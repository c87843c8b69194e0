// Every text and every shape of the page whose contrast with what is behind it is too poor, and how
// many were looked at.
(() => {
  const parts = (colour) => (colour.match(/[\d.]+/g) || []).map(Number);
  const light = (colour) => {
    const [r, g, b] = parts(colour).map((part) => {
      const share = part / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (one, other) => {
    const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const behind = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const colour = getComputedStyle(each).backgroundColor;
      const alpha = parts(colour)[3];
      if (alpha === undefined || alpha === 1) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const poor = [];
  let count = 0;
  const check = (element, colour, ground, least) => {
    count += 1;
    const found = contrast(colour, ground);
    if (found < least) poor.push(`${element.tagName}.${element.className.baseVal ?? element.className} ${colour} on ${ground}: ${found.toFixed(2)}`);
  };
  document.querySelectorAll("details").forEach((each) => { each.open = true; });
  for (const element of document.querySelectorAll("body *")) {
    const words = [...element.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!words || element.closest("script, svg") || element.closest("[hidden]")) continue;
    check(element, getComputedStyle(element).color, behind(element), 4.5);
  }
  for (const shape of document.querySelectorAll("svg path:not(.grid):not(.most)")) {
    const style = getComputedStyle(shape);
    const colour = style.fill === "none" ? style.stroke : style.fill;
    check(shape, colour, behind(shape.closest("svg")), 3);
  }
  return [poor, count];
})();
