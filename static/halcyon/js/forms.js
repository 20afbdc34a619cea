// Commands are copied by a click; actions with a consequence are confirmed in a dialog that
// states it. Both work by delegation, so that swapped content needs no second start.

async function copy(element) {
  const text = element.textContent;
  await navigator.clipboard?.writeText(text).catch(() => {});
  const before = element.title;
  element.title = "copied";
  element.classList.add("copied");
  setTimeout(() => {
    element.title = before;
    element.classList.remove("copied");
  }, 1200);
}

export function startForms() {
  document.addEventListener("click", (event) => {
    const code = event.target.closest("[data-copy]");
    if (code && !getSelection().toString()) copy(code);
    const opener = event.target.closest("[data-opens]");
    if (opener) document.getElementById(opener.dataset.opens)?.showModal();
    const closer = event.target.closest("[data-closes]");
    if (closer) closer.closest("dialog")?.close();
  });
  // A form is sent once, however often its button is pressed.
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.dataset.sent) event.preventDefault();
    else if (form.method === "post") {
      form.dataset.sent = "yes";
      setTimeout(() => delete form.dataset.sent, 3000);
    }
  });
}
