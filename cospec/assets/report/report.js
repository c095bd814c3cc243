"use strict";
// The page is complete without this script; it adds sorting to tables and filters to the rollouts.
(() => {
  // A cell with a number says so in data-value, which is empty where there is none; other cells sort as words.
  function sortBy(table, column, descending) {
    const body = table.tBodies[0];
    const rows = [...body.rows];
    const sign = descending ? -1 : 1;
    rows.sort((one, other) => {
      const [a, b] = [one.cells[column], other.cells[column]];
      const [x, y] = [a.dataset.value, b.dataset.value];
      if (x === undefined) return sign * a.textContent.localeCompare(b.textContent, undefined, { numeric: true });
      // What is missing comes last in either direction.
      if (x === "" || y === "") return (x === "") - (y === "");
      return sign * (Number(x) - Number(y));
    });
    body.append(...rows);
  }

  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const descending = head.getAttribute("aria-sort") === "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", descending ? "descending" : "ascending");
        sortBy(table, column, descending);
      });
    });
  }

  for (const group of document.querySelectorAll(".rollouts")) {
    const articles = [...group.querySelectorAll("article")];
    const verdicts = [...new Set(articles.map((article) => article.dataset.verdict))];
    const filters = group.querySelector(".filters");
    const select = document.createElement("select");
    select.append(new Option("every verdict", ""), ...verdicts.map((verdict) => new Option(verdict, verdict)));
    const search = document.createElement("input");
    search.type = "search";
    for (const [text, control] of [["Show ", select], ["that contain ", search]]) {
      const label = document.createElement("label");
      label.append(text, control);
      filters.append(label);
    }
    const state = document.createElement("span");
    state.className = "note";
    state.setAttribute("aria-live", "polite");
    filters.append(state);
    const apply = () => {
      const wanted = search.value.toLowerCase();
      let count = 0;
      for (const article of articles) {
        const fits =
          (!select.value || article.dataset.verdict === select.value) &&
          article.textContent.toLowerCase().includes(wanted);
        article.hidden = !fits;
        count += fits;
      }
      state.textContent = `${count} of ${articles.length}`;
    };
    select.addEventListener("change", apply);
    search.addEventListener("input", apply);
  }

  // A link into a filtered rollout shows it again.
  addEventListener("hashchange", () => {
    const article = document.getElementById(decodeURIComponent(location.hash.slice(1)))?.closest("article");
    if (article?.hidden) {
      article.hidden = false;
      article.scrollIntoView();
    }
  });
})();
