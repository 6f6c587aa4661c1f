/** The explanation of a workload as a funnel: all nodes, what each filter removes, the candidates, the best two. */

import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { get } from "../api/client";
import type { Explanation, ScoredNode, WorkloadDetail } from "../api/types";
import { Ago, Field, Loading, Panel, Problem } from "../components/basics";
import { Funnel } from "../components/funnel";
import { count } from "../lib/format";

const CURES = {
  release: "other work has to end",
  change: "the cluster or the request has to change",
  never: "waiting cannot help",
};

export function ExplanationTab({ workload }: { workload: WorkloadDetail }) {
  const { data, error, refetch } = useQuery({
    queryKey: ["workload", "explanation", workload.id],
    queryFn: ({ signal }) => get<Explanation>(`/api/workloads/${workload.id}/explanation`, undefined, signal),
  });
  if (error) return <Problem error={error} retry={() => void refetch()} />;
  if (!data) return <Loading />;
  return (
    <>
      <p>{data.summary}</p>
      {data.reason && "cure" in data.reason && (
        <p className="faint">
          Rejected by <strong>{String(data.reason.by)}</strong> (<code>{String(data.reason.code)}</code>):{" "}
          {CURES[data.reason.cure as keyof typeof CURES]}.
        </p>
      )}
      <dl className="facts">
        {data.ahead !== null && data.ahead !== undefined && data.outcome === "waiting" && (
          <Field name="Ahead in the queue">{count(data.ahead, "workload")}</Field>
        )}
        {data.planned_start && (
          <Field name="Planned start">
            <Ago at={data.planned_start} />
          </Field>
        )}
        {data.estimated_start && (
          <Field name="Estimated start">
            <Ago at={data.estimated_start} />
          </Field>
        )}
        {data.unless && <Field name="Pending unless">{data.unless}</Field>}
      </dl>
      {data.nodes > 0 && (
        <Panel title="Nodes">
          <Funnel explanation={data} />
        </Panel>
      )}
      {data.winner && (
        <Panel title="Scores">
          <Scores nodes={[data.winner, data.runner_up]} weights={data.weights} />
        </Panel>
      )}
      {!data.winner && data.nearest_misses.length > 0 && (
        <Panel title="Nearest misses">
          <ul className="misses">
            {data.nearest_misses.map((miss) => (
              <li key={miss.node}>
                <Link to="/nodes/$name" params={{ name: miss.node }}>
                  {miss.node}
                </Link>
                <span className="faint">{miss.rejections.map((each) => each.words.replace(/^1 /, "")).join("; ")}</span>
              </li>
            ))}
          </ul>
        </Panel>
      )}
    </>
  );
}

function Scores({ nodes, weights }: { nodes: (ScoredNode | null | undefined)[]; weights: Record<string, number> }) {
  const shown = nodes.filter((node) => node !== null && node !== undefined);
  return (
    <div className="table-wrap" tabIndex={0} role="region" aria-label="Scores">
      <table>
        <thead>
          <tr>
            <th>Scorer</th>
            <th className="number">Weight</th>
            {shown.map((node, index) => (
              <th key={node.node} className="number">
                {node.node} {index === 0 ? "(chosen)" : "(runner-up)"}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {Object.keys(shown[0]?.scores ?? {}).map((scorer) => (
            <tr key={scorer}>
              <td>{scorer}</td>
              <td className="number">{weights[scorer] ?? ""}</td>
              {shown.map((node) => (
                <td key={node.node} className="number">
                  {node.scores[scorer]?.toFixed(3) ?? "–"}
                </td>
              ))}
            </tr>
          ))}
          <tr className="total">
            <td>Score</td>
            <td />
            {shown.map((node) => (
              <td key={node.node} className="number">
                {node.score.toFixed(3)}
              </td>
            ))}
          </tr>
        </tbody>
      </table>
    </div>
  );
}
