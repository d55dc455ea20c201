// Says what is wrong with the page for whoever has no mouse, no colours or no eyes: a list of sentences.
(() => {
  const wrong = [];
  const seen = (e) => e.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true });
  const where = (e) => e.tagName.toLowerCase() + (e.id ? "#" + e.id : "") + " " + JSON.stringify((e.textContent || "").trim().slice(0, 40));
  const all = (selector) => [...document.querySelectorAll(selector)].filter(seen);

  // Names, landmarks and headings.
  if (!document.documentElement.lang) wrong.push("the page says no language");
  for (const landmark of ["main", "body > header", "body > footer"]) {
    if (all(landmark).length !== 1) wrong.push(`there are ${all(landmark).length} of ${landmark}`);
  }
  if (all("h1").length !== 1) wrong.push(`${all("h1").length} first headings`);
  let level = 0;
  for (const h of all("h1, h2, h3, h4, h5, h6")) {
    const of = Number(h.tagName[1]);
    if (of > level + 1) wrong.push(`a heading leaves out a level: ${where(h)}`);
    level = of;
  }
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  ids.filter((id, i) => ids.indexOf(id) !== i).forEach((id) => wrong.push(`the id ${id} is there twice`));
  for (const attribute of ["aria-labelledby", "aria-describedby"]) {
    for (const e of document.querySelectorAll(`[${attribute}]`)) {
      for (const id of e.getAttribute(attribute).split(" ")) {
        if (!document.getElementById(id)?.textContent.trim()) wrong.push(`${where(e)}: ${attribute} names ${id}, which says nothing`);
      }
    }
  }
  for (const e of all("section, figure, [role=region], svg[role=img]")) {
    if (!e.hasAttribute("aria-label") && !e.hasAttribute("aria-labelledby")) wrong.push(`it has no name: ${where(e)}`);
  }
  for (const e of document.querySelectorAll("svg")) {
    if (e.getAttribute("role") !== "img" && e.getAttribute("aria-hidden") !== "true") wrong.push("a picture has neither a name nor is it hidden");
  }
  for (const e of all("figure")) {
    if (!e.querySelector("details table")) wrong.push(`a chart has no table: ${where(e)}`);
  }
  if (document.querySelectorAll("[role=status]").length !== 1) wrong.push("changes are told at no place, or at several");

  // Tables.
  for (const table of all("table")) {
    const columns = table.querySelectorAll("thead th[scope=col]").length;
    if (columns === 0) wrong.push(`a table has no heads: ${where(table)}`);
    if (!table.caption && !table.hasAttribute("aria-labelledby")) wrong.push(`a table has no name: ${where(table)}`);
    for (const tr of table.querySelectorAll("tbody tr")) {
      if (tr.cells.length !== columns) wrong.push(`a row has ${tr.cells.length} cells below ${columns} heads: ${where(tr)}`);
      if (tr.cells[0].tagName !== "TH" || tr.cells[0].scope !== "row") wrong.push(`a row has no head: ${where(tr)}`);
    }
  }

  // The keyboard: what scrolls can be reached, nothing is out of turn, and targets are large enough (WCAG 2.5.8).
  for (const e of document.querySelectorAll("[tabindex]")) {
    if (e.tabIndex > 0) wrong.push(`out of turn: ${where(e)}`);
  }
  for (const e of all("body *")) {
    if (e.scrollWidth > e.clientWidth + 1 && ["auto", "scroll"].includes(getComputedStyle(e).overflowX) && e.tabIndex < 0) wrong.push(`it scrolls, and not by the keyboard: ${where(e)}`);
  }
  for (const e of all("button, summary")) {
    const box = e.getBoundingClientRect();
    if (box.height < 24 || box.width < 24) wrong.push(`too small to hit, ${box.width} x ${box.height}: ${where(e)}`);
  }

  // The page itself scrolls one way alone (WCAG 1.4.10).
  const root = document.scrollingElement;
  if (root.scrollWidth > root.clientWidth) wrong.push(`it is ${root.scrollWidth} wide in a window of ${root.clientWidth}`);

  // Contrast (WCAG 1.4.3 and 1.4.11): relative luminance as WCAG defines it, over opaque grounds.
  const channels = (color) => color.match(/[\d.]+/g).map(Number);
  const luminance = (color) => {
    const [r, g, b] = channels(color).slice(0, 3).map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const color = getComputedStyle(e).backgroundColor, of = channels(color);
      if (of.length === 3 || of[3] === 1) return color;
      if (of[3] !== 0) wrong.push(`its ground is seen through: ${where(e)}`);
    }
    return "rgb(255, 255, 255)";
  };
  const contrast = (a, b) => {
    const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
    return (high + 0.05) / (low + 0.05);
  };
  let texts = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walker.nextNode());) {
    const e = node.parentElement;
    if (!node.data.trim() || !seen(e) || e.closest("noscript, script")) continue;
    texts++;
    const style = getComputedStyle(e);
    const of = contrast(e.closest("svg") ? style.fill : style.color, ground(e));
    if (of < 4.5) wrong.push(`contrast ${of.toFixed(2)}: ${where(e)}`);
  }
  if (texts < 50) wrong.push(`${texts} texts were looked at`);
  const lines = all("svg .s");
  if (lines.length === 0) wrong.push("no line of a chart was looked at");
  for (const line of lines) {
    const of = contrast(getComputedStyle(line).stroke, ground(line.closest("section")));
    if (of < 3) wrong.push(`contrast ${of.toFixed(2)}: a line of a chart`);
  }
  for (const picture of all("svg[role=img]")) {
    const dashes = [...picture.querySelectorAll(".s")].map((line) => getComputedStyle(line).strokeDasharray);
    if (new Set(dashes).size !== dashes.length) wrong.push("lines of a chart differ in colour alone");
  }
  return wrong;
})()
