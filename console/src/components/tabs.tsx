/** A list of tabs: the arrow keys go to the next one, and the chosen one is in view on narrow screens. */

import { type KeyboardEvent, useEffect, useRef } from "react";

interface Props<T extends string> {
  label: string;
  /** The id of the panel that they control. */
  panel: string;
  tabs: readonly T[];
  chosen: T;
  names?: Partial<Record<T, string>>;
  onChoose: (tab: T) => void;
}

export function Tabs<T extends string>({ label, panel, tabs, chosen, names, onChoose }: Props<T>) {
  const list = useRef<HTMLDivElement>(null);
  // biome-ignore lint/correctness/useExhaustiveDependencies: another tab is to be in view.
  useEffect(() => {
    list.current?.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [chosen]);

  function step(event: KeyboardEvent) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const next = by && tabs[(tabs.indexOf(chosen) + by + tabs.length) % tabs.length];
    if (!next) return;
    event.preventDefault();
    onChoose(next);
    list.current?.querySelector<HTMLElement>(`#tab-${next}`)?.focus();
  }

  return (
    <div className="tabs" role="tablist" aria-label={label} ref={list} onKeyDown={step}>
      {tabs.map((each) => (
        <button
          key={each}
          type="button"
          role="tab"
          id={`tab-${each}`}
          aria-selected={each === chosen}
          aria-controls={panel}
          tabIndex={each === chosen ? 0 : -1}
          onClick={() => onChoose(each)}
        >
          {names?.[each] ?? each}
        </button>
      ))}
    </div>
  );
}
