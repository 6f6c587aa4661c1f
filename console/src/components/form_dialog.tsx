/** A dialog with a few fields, and a table of records: what most administration consists of. */

import { type ReactNode, useState } from "react";
import { Dialog } from "./dialog";

export interface FormField {
  name: string;
  label: string;
  kind?: "text" | "password" | "number" | "area";
  options?: readonly string[];
  required?: boolean;
  value?: string;
  hint?: string;
}

interface Props {
  title: string;
  confirm: string;
  fields: FormField[];
  danger?: boolean;
  children?: ReactNode;
  onSubmit: (values: Record<string, string>) => Promise<unknown>;
  onClose: () => void;
}

export function FormDialog({ title, confirm, fields, danger, children, onSubmit, onClose }: Props) {
  const [values, setValues] = useState<Record<string, string>>(() => Object.fromEntries(fields.map((field) => [field.name, field.value ?? field.options?.[0] ?? ""])));
  return (
    <Dialog title={title} confirm={confirm} danger={danger} onConfirm={() => onSubmit(values)} onClose={onClose}>
      {children}
      {fields.map((field) => {
        const common = {
          value: values[field.name] ?? "",
          required: field.required,
          onChange: (event: { target: { value: string } }) => setValues({ ...values, [field.name]: event.target.value }),
        };
        return (
          <div key={field.name} className="control">
            <label>
              <span>{field.label}</span>
              {field.options ? (
                <select {...common}>
                  {field.options.map((option) => (
                    <option key={option}>{option}</option>
                  ))}
                </select>
              ) : field.kind === "area" ? (
                <textarea rows={5} className="mono" {...common} />
              ) : (
                <input type={field.kind ?? "text"} autoComplete={field.kind === "password" ? "new-password" : "off"} {...common} />
              )}
            </label>
            {field.hint && <small className="faint">{field.hint}</small>}
          </div>
        );
      })}
    </Dialog>
  );
}

/** A button that asks with a form. What `onSubmit` resolves to is shown once, if it is something. */
export function FormButton({ label, name, primary, ...props }: Omit<Props, "onClose"> & { label: string; name?: string; primary?: boolean }) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <button type="button" aria-label={name} className={props.danger ? "danger" : primary ? "primary" : undefined} onClick={() => setOpen(true)}>
        {label}
      </button>
      {open && <FormDialog {...props} onClose={() => setOpen(false)} />}
    </>
  );
}

export interface Column<T> {
  name: string;
  cell: (row: T) => ReactNode;
  number?: boolean;
}

export function Records<T>({ label, rows, columns, id }: { label: string; rows: readonly T[]; columns: Column<T>[]; id: (row: T) => string }) {
  return (
    <div className="table-wrap" tabIndex={0} role="region" aria-label={label}>
      <table>
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column.name} className={column.number ? "number" : undefined}>
                {column.name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={id(row)}>
              {columns.map((column) => (
                <td key={column.name} className={column.number ? "number" : undefined}>
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** A secret that the server shows once. */
export function ShownOnce({ title, text, onClose }: { title: string; text: string; onClose: () => void }) {
  return (
    <Dialog title={title} confirm="Copy it" onConfirm={() => navigator.clipboard.writeText(text)} onClose={onClose}>
      <p>It is shown only now.</p>
      <pre className="once">{text}</pre>
    </Dialog>
  );
}
