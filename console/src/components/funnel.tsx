/** The nodes that each filter removes, from all of them to the candidates. */

import type { Explanation } from "../api/types";
import { percent } from "../lib/format";
import { funnel } from "../lib/funnel";

export function Funnel({ explanation }: { explanation: Explanation }) {
  return (
    <ol className="funnel">
      {funnel(explanation).map((step) => (
        <li key={step.name} className={step.kind}>
          <span className="what">
            <strong>{step.name}</strong> {step.text && <span className="faint">{step.text}</span>}
          </span>
          <span className="number">{step.kind === "removed" ? `−${step.nodes}` : step.nodes}</span>
          <span className="track" aria-hidden="true">
            <span className="left" style={{ width: `${percent(step.left, explanation.nodes)}%` }} />
            {step.kind === "removed" && <span className="lost" style={{ width: `${percent(step.nodes, explanation.nodes)}%` }} />}
          </span>
        </li>
      ))}
    </ol>
  );
}
