/** Policies: every rule with its explanation from the API; a rule is inherited, lifted or set. */

import { useState } from "react";
import type { Policy } from "../api/types";
import { Empty, Loading, Panel, Problem } from "../components/basics";
import { Dialog } from "../components/dialog";
import { Records } from "../components/form_dialog";
import { SchemaInput } from "../components/schema_input";
import type { Schema } from "../lib/json_schema";
import { changedRules, type Rules } from "../lib/rules";
import { initial, inWords } from "../lib/schema_fields";
import { useDescription } from "./admin_pools";
import { useChange, useList } from "./admin_tenants";

const NEW = "new";

export function PoliciesPart() {
  const { data, error } = useList<Policy[]>("policies", "/api/policies");
  const description = useDescription();
  const [chosen, setChosen] = useState<Policy | typeof NEW | null>(null);
  if (error ?? description.error) return <Problem error={error ?? description.error} />;
  if (!data || !description.data) return <Loading />;
  const schema = description.data.schemas.PolicyRequest?.properties?.rules ?? {};
  return (
    <Panel
      title="Policies"
      aside={
        <button type="button" onClick={() => setChosen(NEW)}>
          New policy
        </button>
      }
    >
      {data.length === 0 ? (
        <Empty title="There is no policy. A policy bounds what tenants may submit:" command="mooring policy create short" />
      ) : (
        <Records
          label="Policies"
          rows={data}
          id={(each) => each.name}
          columns={[
            { name: "Policy", cell: (each) => each.name },
            { name: "Rules", cell: (each) => <RuleList rules={each.rules} /> },
            { name: "Carriers", cell: (each) => each.carriers, number: true },
            {
              name: "Actions",
              cell: (each) => (
                <button type="button" aria-label={`Change ${each.name}`} onClick={() => setChosen(each)}>
                  Change
                </button>
              ),
            },
          ]}
        />
      )}
      {chosen && <PolicyDialog policy={chosen === NEW ? null : chosen} root={description.data.root} schema={schema} onClose={() => setChosen(null)} />}
    </Panel>
  );
}

function RuleList({ rules }: { rules: Rules }) {
  const entries = Object.entries(rules);
  if (!entries.length) return <span className="faint">all inherited</span>;
  return (
    <ul className="rules">
      {entries.map(([name, value]) => (
        <li key={name}>
          <span className="faint">{name.replaceAll("_", " ")}</span> {value === null ? "no limit" : inWords(value)}
        </li>
      ))}
    </ul>
  );
}

function PolicyDialog({ policy, root, schema, onClose }: { policy: Policy | null; root: Schema; schema: Schema; onClose: () => void }) {
  const change = useChange();
  const [name, setName] = useState(policy?.name ?? "");
  const [rules, setRules] = useState<Rules>(policy?.rules ?? {});
  const set = (rule: string, value: unknown) => setRules({ ...rules, [rule]: value });

  async function submit() {
    if (!policy) return change("POST", "/api/policies", { name, rules });
    const changed = changedRules(policy.rules, rules);
    if (Object.keys(changed).length) await change("PATCH", `/api/policies/${policy.name}`, { rules: changed });
  }

  return (
    <Dialog title={policy ? `Rules of ${policy.name}` : "New policy"} confirm={policy ? "Change it" : "Create it"} onConfirm={submit} onClose={onClose}>
      {!policy && (
        <div className="control">
          <label>
            <span>Name</span>
            <input required autoComplete="off" value={name} onChange={(event) => setName(event.target.value)} />
          </label>
        </div>
      )}
      <ul className="rule-form">
        {Object.entries(schema.properties ?? {}).map(([rule, of]) => {
          const state = !(rule in rules) ? "inherited" : rules[rule] === null ? "lifted" : "set";
          const label = rule.replaceAll("_", " ");
          return (
            <li key={rule} className={state === "inherited" ? undefined : "own"}>
              <div>
                <strong>{label}</strong>
                <p className="faint">{of.description}</p>
              </div>
              <select
                aria-label={`Source of ${label}`}
                value={state}
                onChange={(event) => {
                  if (event.target.value === "inherited") setRules(Object.fromEntries(Object.entries(rules).filter(([each]) => each !== rule)));
                  else set(rule, event.target.value === "lifted" ? null : initial(root, of));
                }}
              >
                <option value="inherited">inherited</option>
                <option value="set">set here</option>
                <option value="lifted">no limit</option>
              </select>
              {state === "set" && (
                <div className="value">
                  <SchemaInput root={root} schema={of} label={label} value={rules[rule]} onChange={(value) => set(rule, value)} />
                </div>
              )}
            </li>
          );
        })}
      </ul>
    </Dialog>
  );
}
