// Replaces the sections "state" and "now" once a second by what the server says, while the page is seen. Keys and
// rules stay as they are: to read them walks over what is in memory.
(() => {
  const refresh = async () => {
    if (document.hidden) return;
    let text;
    try {
      const answer = await fetch(new URL("./?part=now", location.href), { cache: "no-store" });
      if (!answer.ok) throw new Error(String(answer.status));
      text = await answer.text();
    } catch (e) {
      document.title = "no answer";
      return;
    }
    const fresh = new DOMParser().parseFromString(text, "text/html");
    const names = ["state", "now"];
    if (!names.every(name => fresh.getElementById(name))) return;
    for (const name of names) {
      const was = document.getElementById(name), is = document.adoptNode(fresh.getElementById(name));
      // Who reads a table with the keyboard stays where they are.
      const held = [...was.querySelectorAll("[tabindex]")].findIndex(e => e === document.activeElement);
      const at = [...was.querySelectorAll(".wide")].map(e => e.scrollLeft);
      was.replaceWith(is);
      is.querySelectorAll(".wide").forEach((e, i) => e.scrollLeft = at[i] ?? 0);
      if (held >= 0) is.querySelectorAll("[tabindex]")[held]?.focus({ preventScroll: true });
    }
    const mode = document.querySelector("#state .mode strong");
    document.title = document.querySelector("h1").textContent + ": " + (mode ? mode.textContent : "");
  };
  setInterval(refresh, 1000);
})();
