// Every half minute the overview is read again, unless somebody looks at numbers or has left.
"use strict";
async function refresh() {
  if (document.hidden || document.querySelector("details[open]")) return;
  try {
    const answer = await fetch(location.href, { redirect: "error" });
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const [now, then] = [page.querySelector("main"), document.querySelector("main")];
    if (now && now.innerHTML !== then.innerHTML) then.replaceWith(now);
  } catch {} // the next time may succeed
}
setInterval(refresh, 30000);
