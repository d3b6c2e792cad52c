// Replaces the section "now" once a second by what the server says, while the page is seen. Keys and
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
    const fresh = new DOMParser().parseFromString(text, "text/html").getElementById("now");
    if (!fresh) return;
    document.getElementById("now").replaceWith(document.adoptNode(fresh));
    const mode = fresh.querySelector(".mode strong");
    document.title = document.querySelector("h1").textContent + ": " + (mode ? mode.textContent : "");
  };
  setInterval(refresh, 1000);
})();
