/** A modal question before something that cannot be undone. */

import { type ReactNode, useEffect, useRef, useState } from "react";
import { Problem } from "./basics";

interface Props {
  title: string;
  confirm: string;
  danger?: boolean;
  children: ReactNode;
  onConfirm: () => Promise<unknown>;
  onClose: () => void;
}

export function Dialog({ title, confirm, danger, children, onConfirm, onClose }: Props) {
  const ref = useRef<HTMLDialogElement>(null);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  useEffect(() => ref.current?.showModal(), []);

  async function submit() {
    setBusy(true);
    setError(null);
    try {
      await onConfirm();
      onClose();
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  }

  return (
    <dialog ref={ref} onClose={onClose} aria-labelledby="dialog-title">
      <form
        method="dialog"
        onSubmit={(event) => {
          event.preventDefault();
          void submit();
        }}
      >
        <h2 id="dialog-title">{title}</h2>
        <div className="content">{children}</div>
        {error !== null && <Problem error={error} />}
        <footer>
          <button type="button" onClick={onClose}>
            {danger ? "Keep as it is" : "Close"}
          </button>
          <button type="submit" className={danger ? "danger" : "primary"} disabled={busy}>
            {busy ? "Working…" : confirm}
          </button>
        </footer>
      </form>
    </dialog>
  );
}
