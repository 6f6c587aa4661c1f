/** A control for a value that a schema describes: a choice, a number, a list, a table of names and values, or a group. */

import { useId, useState } from "react";
import type { Schema } from "../lib/json_schema";
import { isObject } from "../lib/json_schema";
import { controlOf, initial, scalar } from "../lib/schema_fields";

interface Props {
  root: Schema;
  schema: Schema;
  label: string;
  value: unknown;
  onChange: (value: unknown) => void;
}

export function SchemaInput({ root, schema, label, value, onChange }: Props) {
  const control = controlOf(root, schema);
  switch (control.kind) {
    case "choice":
      return (
        <select aria-label={label} value={JSON.stringify(value ?? control.options[0])} onChange={(event) => onChange(JSON.parse(event.target.value))}>
          {control.options.map((option) => (
            <option key={String(option)} value={JSON.stringify(option)}>
              {option === true ? "yes" : option === false ? "no" : String(option)}
            </option>
          ))}
        </select>
      );
    case "choices":
      return <Choices label={label} options={control.options} value={Array.isArray(value) ? value : []} onChange={onChange} />;
    case "number":
      return (
        <input
          type="number"
          aria-label={label}
          required
          min={control.minimum}
          max={control.maximum}
          value={value === null || value === undefined ? "" : String(value)}
          onChange={(event) => onChange(event.target.value === "" ? undefined : event.target.valueAsNumber)}
        />
      );
    case "lines":
      return <Lines label={label} value={Array.isArray(value) ? value : []} onChange={onChange} />;
    case "map":
      return <Pairs root={root} schema={control.value} label={label} value={isObject(value) ? value : {}} onChange={onChange} />;
    case "group": {
      const held = isObject(value) ? value : (initial(root, schema) as Record<string, unknown>);
      return (
        <div className="schema-group">
          {Object.entries(control.fields).map(([name, field]) => (
            <div key={name} className="control">
              <span aria-hidden="true">{name.replaceAll("_", " ")}</span>
              <SchemaInput root={root} schema={field} label={`${label} ${name}`} value={held[name]} onChange={(next) => onChange({ ...held, [name]: next })} />
              {field.description && <small className="faint">{field.description}</small>}
            </div>
          ))}
        </div>
      );
    }
    default:
      return <input aria-label={label} autoComplete="off" value={value === null || value === undefined ? "" : String(value)} onChange={(event) => onChange(scalar(root, schema, event.target.value))} />;
  }
}

interface ListProps {
  label: string;
  value: readonly unknown[];
  onChange: (value: unknown) => void;
}

function Choices({ label, options, value, onChange }: ListProps & { options: readonly unknown[] }) {
  const toggle = (option: unknown) => onChange(options.filter((each) => (each === option ? !value.includes(each) : value.includes(each))));
  return (
    <div className="choices" role="group" aria-label={label}>
      {options.map((option) => (
        <label key={String(option)} className="check">
          <input type="checkbox" checked={value.includes(option)} onChange={() => toggle(option)} />
          {String(option)}
        </label>
      ))}
    </div>
  );
}

/** A list of texts, one to a line. The text keeps empty lines while it is typed. */
function Lines({ label, value, onChange }: ListProps) {
  const [text, setText] = useState(value.map(String).join("\n"));
  const hint = useId();
  return (
    <>
      <textarea
        rows={Math.max(3, text.split("\n").length)}
        className="mono"
        aria-label={label}
        aria-describedby={hint}
        value={text}
        onChange={(event) => {
          setText(event.target.value);
          onChange(event.target.value.split("\n").filter((line) => line !== ""));
        }}
      />
      <small id={hint} className="faint">
        One to a line.
      </small>
    </>
  );
}

interface PairsProps {
  root: Schema;
  schema: Schema;
  label: string;
  value: Record<string, unknown>;
  onChange: (value: unknown) => void;
}

/** Names with their values. A row without a name is kept here and not passed on. */
function Pairs({ root, schema, label, value, onChange }: PairsProps) {
  const [rows, setRows] = useState<{ key: number; name: string; value: unknown }[]>(() => Object.entries(value).map(([name, each], key) => ({ key, name, value: each })));
  const change = (next: typeof rows) => {
    setRows(next);
    onChange(Object.fromEntries(next.filter((row) => row.name !== "").map((row) => [row.name, row.value])));
  };
  const edit = (key: number, part: object) => change(rows.map((row) => (row.key === key ? { ...row, ...part } : row)));
  const next = Math.max(-1, ...rows.map((row) => row.key)) + 1;
  return (
    <div className="pairs" role="group" aria-label={label}>
      {rows.map((row, index) => (
        <div key={row.key}>
          <input aria-label={`${label}: name ${index + 1}`} placeholder="name" value={row.name} onChange={(event) => edit(row.key, { name: event.target.value.trim() })} />
          <SchemaInput root={root} schema={schema} label={`${label}: value ${index + 1}`} value={row.value} onChange={(each) => edit(row.key, { value: each })} />
          <button type="button" aria-label={`Remove ${row.name || `row ${index + 1}`} from ${label}`} onClick={() => change(rows.filter((each) => each.key !== row.key))}>
            ×
          </button>
        </div>
      ))}
      <button type="button" onClick={() => change([...rows, { key: next, name: "", value: initial(root, schema) }])}>
        Add to {label.replaceAll("_", " ")}
      </button>
    </div>
  );
}
